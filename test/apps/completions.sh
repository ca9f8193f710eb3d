#!/usr/bin/env bash
# test/apps/completions.sh TROUPE: what the shells that are installed complete, asked of them.
set -uo pipefail
troupe=$1
failures=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for shell in bash zsh fish; do "$troupe" completions $shell >"$folder/_troupe.$shell"; done
cd "$folder" && touch a_file

of_bash() {
  bash --norc -c '
    source _troupe.bash
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _troupe
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))  # -o default
    echo "${COMPREPLY[@]}"' bash "$@"
}
of_fish() { fish --no-config -c 'source _troupe.fish; complete -C "$argv"' "$@" | cut -f1 | tr '\n' ' '; }
# A terminal of its own, as completion needs one; the first TAB after its start, with the script autoloaded.
of_zsh() {
  mkdir -p functions && cp _troupe.zsh functions/_troupe
  line="$*" zsh -f -c '
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "PS1=pr\"\"ompt\>; PS2= RPS1=; stty cols 400; fpath=($PWD/functions \$fpath); autoload -Uz compinit; compinit -u -D; setopt nolistambiguous; bindkey \"^I\" complete-word; zstyle \":completion:*\" list-colors \"\"; LISTMAX=1000; echo re\"\"ady"
    zpty -r shell said "*ready*prompt>*"  # what is typed before goes through the terminal, not the editor
    zpty -w -n shell "$line"$'"'\t\t\x15'"'"echo en\"\"ded"$'"'\n'"'
    zpty -r shell said "*ended*"
    print -r -- "$said"' | tr -c '[:print:]' ' '
}

# completes WORDS LINE...: all of them are offered by each shell that is there.
completes() {
  local wanted=$1 shell got word
  shift
  for shell in bash zsh fish; do
    command -v $shell >/dev/null || continue
    got=$(of_$shell "$@")
    for word in $wanted; do
      grep -q -- "$word" <<<"$got" && continue
      echo "$shell: 'troupe ${*:2}<TAB>' offers no $word, but: $got"
      failures=$((failures + 1))
    done
  done
}

for shell in bash zsh fish; do command -v $shell >/dev/null || echo "no $shell here: its completions are not tested"; done
completes 'doctor diagnose' troupe ''
completes 'bash zsh fish' troupe completions ''
completes 'text json' troupe node --log ''
completes '--seconds --out --json' troupe trace --
completes '--every --watch --json' troupe top --
completes '--on --join --keys' troupe clear --
completes a_file troupe trace -o ''
completes a_file troupe report a/1 --out ''
exit $((failures > 0))
