// troupe completions: scripts that complete the command line, made from the parser's verbs and
// flags.
#include <troupe/apps/verbs/verbs.hpp>

#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe::verbs {
namespace {

/// The words that may follow the verb: fixed words of its own, and its flags.
std::string words_of(const Completed& verb) {
  std::vector<std::string> words = verb.choices;
  for (const auto& f : verb.flags)
    for (const std::string& name : f.names)
      if (name.starts_with("--")) words.push_back(name);
  return fmt::format("{}", fmt::join(words, " "));
}

std::string names_of(const std::vector<Completed>& verbs) {
  std::string names;
  for (const Completed& v : verbs) names += (names.empty() ? "" : " ") + v.verb;
  return names;
}

/// Words without completions here are completed as file names.
std::string bash(const std::vector<Completed>& verbs) {
  std::string values, words;
  for (const Completed& v : verbs) {
    for (const auto& f : v.flags) {
      if (!f.takes_value) continue;
      std::string cases;
      for (const std::string& name : f.names)
        cases += fmt::format("{}'{} {}'", cases.empty() ? "" : "|", v.verb, name);
      values += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n",
                            cases, fmt::join(f.choices, " "));
    }
    words += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n", v.verb,
                         words_of(v));
  }
  return "_troupe() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n "
         " COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W '" +
         names_of(verbs) +
         "' -- \"$word\"))\n    return\n  fi\n"
         "  case \"${COMP_WORDS[1]} $before\" in\n" +
         values + "  esac\n  case ${COMP_WORDS[1]} in\n" + words +
         "  esac\n}\ncomplete -o default -F _troupe troupe\n";
}

/// Autoloaded from fpath, the file is the body of `_troupe`, which then completes; sourced, it
/// registers.
std::string zsh(const std::vector<Completed>& verbs) {
  std::string out = "#compdef troupe\n_troupe() {\n  if (( CURRENT == 2 )); then\n    compadd -- " +
                    names_of(verbs) +
                    "\n    return\n  fi\n  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n";
  for (const Completed& v : verbs) {
    out += fmt::format("    {}) _arguments", v.verb);
    for (const auto& f : v.flags) {
      const std::string value = !f.choices.empty() ? fmt::format("({})", fmt::join(f.choices, " "))
                                : f.is_file        ? "_files"
                                                   : " ";
      for (const std::string& name : f.names)
        out +=
            fmt::format(" '{}{}'", name,
                        !f.takes_value ? "" : (f.may_lack_value ? "::value:" : ":value:") + value);
    }
    out += v.choices.empty() ? " '*:value: ' ;;\n"
                             : fmt::format(" '1:value:({})' ;;\n", fmt::join(v.choices, " "));
  }
  return out +
         "  esac\n}\nif [[ $funcstack[1] == _troupe ]]; then _troupe \"$@\"; else compdef _troupe "
         "troupe; fi\n";
}

std::string fish(const std::vector<Completed>& verbs) {
  std::string out = "complete -c troupe -f\ncomplete -c troupe -n __fish_use_subcommand -a '" +
                    names_of(verbs) + "'\n";
  for (const Completed& v : verbs) {
    const std::string of_verb =
        fmt::format("complete -c troupe -n '__fish_seen_subcommand_from {}'", v.verb);
    if (!v.choices.empty()) out += fmt::format("{} -a '{}'\n", of_verb, fmt::join(v.choices, " "));
    for (const auto& f : v.flags) {
      out += of_verb;
      for (const std::string& name : f.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (f.takes_value && !f.may_lack_value)
        out += f.is_file            ? " -r -F"
               : !f.choices.empty() ? fmt::format(" -x -a '{}'", fmt::join(f.choices, " "))
                                    : " -x";
      out += "\n";
    }
  }
  return out;
}

}  // namespace

int completions(const std::string& shell, const std::vector<Completed>& verbs) {
  const std::string script = shell == "fish"  ? fish(verbs)
                             : shell == "zsh" ? zsh(verbs)
                                              : bash(verbs);
  std::fwrite(script.data(), 1, script.size(), stdout);
  return 0;
}

}  // namespace troupe::verbs
