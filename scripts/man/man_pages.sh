#!/usr/bin/env bash
# scripts/man/man_pages.sh TROUPE FOLDER: writes troupe.1.gz and a page a verb, troupe-VERB.1.gz.
#
# Synopsis and options are the program's own help; examples and other sections are
# scripts/man/VERB.man (troupe.man for the program), one file a verb, in roff. FOLDER/pages names
# all of them.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0" && exit 0 ;; esac
troupe=$1 folder=$2
texts=$(cd "$(dirname "$0")" && pwd)
version=$("$troupe" --version | sed 's/^troupe //')
# The day of the last entry of the changelog, so that two builds write the same.
day=$(sed -n '/^ -- /{s/^ -- .*>  //p;q}' "$texts/../debian/changelog")
day=$(date --utc --date="$day" +%F)
mkdir -p "$folder"

# Options, positionals and verbs of a help text, as roff. An entry begins in column 3, its
# description in column 31 or on the next line.
entries() {
  awk '
    function roff(text) {
      gsub(/\\/, "\\e", text)
      gsub(/-/, "\\-", text)
      return text
    }
    function line(text) { print (text ~ /^[.'\'']/ ? "\\&" : "") roff(text) }
    function section(name) { print ".SH " name }
    # A choice of words stands behind a blank; what the parser calls the types is left out.
    function value(text) {
      sub(/^(TEXT|INT|FLOAT):[{]/, "{", text)
      sub(/:?(INT|FLOAT) in /, " in ", text)
      sub(/^:?(INT|FLOAT|TEXT)/, "VALUE", text)
      sub(/^(VALUE )?VALUE/, "VALUE", text)
      sub(/^[ :]+/, "", text)
      return text
    }
    /^Usage: / { next }
    /^Positionals:/ { section("ARGUMENTS"); next }
    /^Options:/ { section("OPTIONS"); next }
    /^Subcommands:/ { section("VERBS"); next }
    /^Exit status: / { next }
    /^  [^ ]/ {
      head = $0; text = ""
      if (length(head) > 30 && substr(head, 30, 1) == " ") {
        text = substr(head, 31); head = substr(head, 1, 30)
      }
      sub(/^  /, "", head); sub(/ +$/, "", head)
      name = head; rest = ""
      if (match(head, / /)) { name = substr(head, 1, RSTART - 1); rest = substr(head, RSTART + 1) }
      gsub(/,/, ", ", name)
      if (name ~ /^-/ && rest != "") rest = " " value(rest); else if (rest != "") rest = ""
      print ".TP"
      print ".B " roff(name) (rest != "" ? "\\fR" roff(rest) : "")
      if (text != "") line(text)
      next
    }
    /^ +[^ ]/ { text = $0; sub(/^ +/, "", text); line(text) }
  '
}

quote() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g'; }

page() {  # the page's name, the words that call it, the text of its own
  local name=$1 text=$3 help usage summary
  read -ra words <<<"$2"
  help=$("$troupe" "${words[@]}" --help)
  summary=$(sed -n 1p <<<"$help" | sed 's/^Troupe: //; s/\.$//')
  usage=$(sed -n 's/^Usage: //p' <<<"$help")
  {
    printf '.TH %s 1 %s "Troupe %s" "User Commands"\n' "${name^^}" "$day" "$version"
    printf '.SH NAME\n%s \\- %s\n' "$(quote <<<"$name")" "$(quote <<<"${summary,}")"
    printf '.SH SYNOPSIS\n.B %s\n' "$(quote <<<"$usage")"
    printf '.SH DESCRIPTION\n%s.\n' "$(quote <<<"$summary")"
    entries <<<"$help"
    [ ! -e "$text" ] || cat "$text"
    printf '.SH EXIT STATUS\n%s\n' "$(sed -n 's/^Exit status: //p' <<<"$help" | quote)"
    printf '.SH SEE ALSO\n'
    for other in "${pages[@]}"; do
      [ "$other" = "$name" ] || printf '.BR %s (1),\n' "$(quote <<<"$other")"
    done | sed '$s/,$//'
  } | gzip -9n >"$folder/$name.1.gz"
}

mapfile -t verbs < <("$troupe" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
pages=(troupe "${verbs[@]/#/troupe-}")
page troupe '' "$texts/troupe.man"
for verb in "${verbs[@]}"; do page "troupe-$verb" "$verb" "$texts/$verb.man"; done
printf '%s\n' "${pages[@]}" >"$folder/pages"
