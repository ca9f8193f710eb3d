#!/usr/bin/env bash
# test/apps/completions.sh TROUPE SHELL: compares the completions that bash, zsh or fish offers.
# Skipped where the shell is not installed.
set -uo pipefail
troupe=$1 shell=$2
command -v "$shell" >/dev/null || {
  echo "no $shell here: its completions are not tested"
  exit 77
}
failures=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$troupe" completions "$shell" >"$folder/_troupe.$shell" || exit 1
cd "$folder" && touch a_file

of_bash() {
  bash --norc -c '
    source _troupe.bash
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _troupe
    # -o default
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    echo "${COMPREPLY[@]}"' bash "$@"
}
of_fish() {
  fish --no-config -c 'source _troupe.fish; complete -C "$argv"' "$@" | cut -f1 | tr '\n' ' '
}
# Completion needs a terminal of its own; the first TAB after its start, with the script autoloaded.
of_zsh() {
  mkdir -p functions && cp _troupe.zsh functions/_troupe
  line="$*" zsh -f -c '
    zmodload zsh/zpty
    zpty shell zsh -f -i
    setup="PS1=pr\"\"ompt\>; PS2= RPS1=; stty cols 400; fpath=($PWD/functions \$fpath); "
    setup+="autoload -Uz compinit; compinit -u -D; setopt nolistambiguous; "
    setup+="bindkey \"^I\" complete-word; zstyle \":completion:*\" list-colors \"\"; "
    setup+="LISTMAX=1000; echo re\"\"ady"
    zpty -w shell "$setup"
    # Earlier input would go through the terminal, not the editor.
    zpty -r shell said "*ready*prompt>*"
    zpty -w -n shell "$line"$'"'\t\t\x15'"'"echo en\"\"ded"$'"'\n'"'
    zpty -r shell said "*ended*"
    print -r -- "$said"' | tr -c '[:print:]' ' '
}

# completes WORDS LINE...: all of them are offered.
completes() {
  local wanted=$1 got word
  shift
  got=$("of_$shell" "$@")
  for word in $wanted; do
    grep -q -- "$word" <<<"$got" && continue
    echo "$shell: 'troupe ${*:2}<TAB>' offers no $word, but: $got"
    failures=$((failures + 1))
  done
}

completes 'doctor diagnose' troupe ''
completes 'bash zsh fish' troupe completions ''
completes 'text json' troupe node --log ''
completes '--seconds --out --json' troupe trace --
completes '--every --watch --json' troupe top --
completes '--on --join --keys' troupe clear --
completes a_file troupe trace -o ''
completes a_file troupe report a/1 --out ''
exit $((failures > 0))
