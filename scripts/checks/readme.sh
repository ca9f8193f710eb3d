#!/usr/bin/env bash
# scripts/checks/readme.sh [TREE]: checks that the pages still match the tree.
#
# In every *.md: a command of a ```sh block that starts with scripts/, .ci/ or build/ exists, and so
# does every flag it shows; a relative link leads somewhere; a ```cpp block after
# `<!-- the whole of FILE -->` is that file, letter by letter; files that a map names exist. In
# test/, a comment `// W17` or `// W2, W3: ...` names rows of a CASES.md; each row is named in the
# folders of test/CASES.md.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

status=0
complain() {
  echo "$1"
  status=1
}

check_command() { # page:line, command line
  local program=${2%% *} word verb help
  case $program in
    scripts/* | .ci/*)
      [ -x "$program" ] || { complain "$1: there is no command $program" && return; }
      ;;
    # Before a build there is nothing to compare with: the source must be there at least.
    build/release/troupe) [ -e apps/main.cpp ] || complain "$1: there is no $program" ;;
    build/release/examples/*)
      compgen -G "apps/examples/*${program##*/}.cpp" >/dev/null ||
        complain "$1: there is no example ${program##*/}"
      ;;
    build/release/bench/*)
      [ -e "test/bench/${program##*/}.cpp" ] || complain "$1: there is no benchmark ${program##*/}"
      ;;
    *) return ;;
  esac
  [ -x "$program" ] || return 0
  for word in $2; do
    case $word in
      --help) ;;
      --*)
        verb=$(awk '$2 ~ /^[a-z]/ { print $2 }' <<<"$2")
        [ "$program" = build/release/troupe ] || verb=
        help=$("$program" ${verb:+"$verb"} --help 2>&1 || true)
        grep -q -- "${word%%=*}" <<<"$help" || complain "$1: $program has no flag $word"
        ;;
      '#'*) break ;;
    esac
  done
}

check_snippet() { # page:line, file, text
  [ -e "$2" ] || { complain "$1: there is no file $2"; return; }
  diff -u --label "$2" --label "$1" "$2" <(printf '%s' "$3") ||
    complain "$1: the program is no longer $2"
}

check_link() { # page, line, target
  local target=${3%%#*}
  case $target in '' | http:* | https:* | mailto:*) return ;; esac
  [ -e "$(dirname "$1")/$target" ] || complain "$1:$2: the link to $target leads nowhere"
}

check_page() {
  local page=$1 n=0 block='' from='' text='' line
  while IFS= read -r line || [ -n "$line" ]; do
    n=$((n + 1))
    case $block in
      '')
        case $line in
          '```sh') block='sh' ;;
          '```cpp') block=cpp text='' ;;
          '```'*) block=other ;;
          '<!-- the whole of '*) from=${line#<!-- the whole of } from=${from% -->} ;;
          *']('*)
            while IFS= read -r target; do
              [ -z "$target" ] || check_link "$page" "$n" "$target"
            done \
              < <(grep -oE '\]\([^) ]+\)' <<<"$line" | sed 's/^](//; s/)$//' || true)
            ;;
        esac
        ;;
      *)
        if [ "$line" = '```' ]; then
          if [ "$block" = cpp ] && [ -n "$from" ]; then check_snippet "$page:$n" "$from" "$text"; fi
          [ "$block" = cpp ] && from=''
          block=''
        elif [ "$block" = sh ]; then
          check_command "$page:$n" "$line"
        else
          text+=$line$'\n'
        fi
        ;;
    esac
  done <"$page"
}

pruned=(-path ./build -o -path ./.git -o -path ./.peers)
while IFS= read -r page; do check_page "$page"; done \
  < <(find . \( "${pruned[@]}" \) -prune -o -name '*.md' -printf '%P\n' | sort)

# Maps: a name in the first column of a README's "## Map" is a file or a folder beneath it.
while IFS= read -r page; do
  awk '/^## / { in_map = ($0 == "## Map") }
    in_map && /^\|.*`/ { split($0, cell, "|"); print NR ":" cell[2] }' "$page" >"$work/map"
  find "$(dirname "$page")" \( "${pruned[@]}" \) -prune -o -printf '%P\n' >"$work/files"
  while IFS=: read -r line cell; do
    while IFS= read -r name; do
      [ -z "$name" ] || grep -qE "(^|/)${name%/}(\.[a-z]+)?(/|$)" "$work/files" ||
        complain "$page:$line: the map names $name, which is not there"
    done < <(grep -oE '`[A-Za-z][A-Za-z0-9_./-]*`' <<<"$cell" | tr -d '`' || true)
  done <"$work/map"
done < <(find . \( "${pruned[@]}" \) -prune -o -name README.md -printf '%P\n' | sort)

# Row marks of tests: FILE:LINE ROW for each, without those whose row is in a table.
rows=$(find test -name CASES.md -exec grep -hoE '^\| *[A-Z][0-9]+ *\|' {} + | tr -d '| ' || true)
marks=$(find test \( -name '*.cpp' -o -name '*.hpp' \) -print0 | sort -z |
  xargs -0 -r grep -HnoE '// [A-Z][0-9]+(, [A-Z][0-9]+)*($|[^A-Za-z0-9_])' || true)
while IFS= read -r mark; do
  for row in $(grep -oE '[A-Z][0-9]+' <<<"${mark#*// }" || true); do
    grep -qx "$row" <<<"$rows" ||
      complain "${mark%%:// *}: no CASES.md has a row $row; see test/CASES.md"
  done
done <<<"$marks"

# Rows that no test names. A script names a row by `# E6`; a page excepts rows in a line that begins
# with `Without a test: `. In the folders of a page, a mark of one of its rows names no row of the
# page for all folders.
rows_of() { # page
  grep -hoE '^\| *[A-Z][0-9]+ *\|' "test/$1" | tr -d '| ' | sort -u || true
}
named() { # folder...; prints FILE ROW
  grep -roE '(//|#) [A-Z][0-9]+(, [A-Z][0-9]+)*($|[^A-Za-z0-9_])' --include='*.cpp' \
    --include='*.hpp' --include='*.sh' "$@" 2>/dev/null |
    awk '{ n = index($0, ":"); file = substr($0, 1, n - 1); rest = substr($0, n + 1)
           while (match(rest, /[A-Z][0-9]+/)) {
             print file, substr(rest, RSTART, RLENGTH)
             rest = substr(rest, RSTART + RLENGTH) } }' |
    sort -u || true
}
while IFS='|' read -r _ page _ where _; do
  page=$(sed -n 's/.*(\([^)]*CASES\.md\)).*/\1/p' <<<"$page")
  [ -n "$page" ] && [ -e "test/$page" ] || continue
  echo "$page $where"
done <test/CASES.md >"$work/pages"
while read -r page where; do
  case $where in *'all folders'*) continue ;; esac
  for folder in ${where//,/ }; do rows_of "$page" | sed "s|^|test/$folder |"; done
done <"$work/pages" >"$work/claimed"
while read -r page where; do
  case $where in
    *'all folders'*)
      named test scripts/checks |
        awk 'NR == FNR { claimed[$2] = claimed[$2] " " $1; next }
             { n = split(claimed[$2], folders, " ")
               for (i = 1; i <= n; ++i) if (index($1, folders[i]) == 1) next
               print $2 }' "$work/claimed" - >"$work/named"
      ;;
    *)
      folders=()
      for folder in ${where//,/ }; do folders+=("test/$folder"); done
      named "${folders[@]}" | cut -d' ' -f2 >"$work/named"
      ;;
  esac
  sed -n 's/^Without a test: //p' "test/$page" | grep -oE '[A-Z][0-9]+' >>"$work/named" || true
  while IFS= read -r row; do
    line=$(grep -nE "^\| *$row *\|" "test/$page" | cut -d: -f1)
    complain "test/$page:$line: no test names row $row"
  done < <(comm -23 <(rows_of "$page") <(sort -u "$work/named"))
done <"$work/pages"
exit $status
