# Bash completion of AxCCL's programs: options, and commands of those that have some, as their --help lists them.
_axccl() {
  local current=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} words
  if [[ $current == -* ]]; then
    words=$("$program" --help 2>/dev/null | grep -oE -- '--[a-z][a-z_-]*' | sort -u)
  elif [[ $COMP_CWORD -eq 1 ]]; then
    words=$("$program" --help 2>/dev/null | sed -nE 's/^  (axccl-plan )?([a-z]+) .*/\2/p' | sort -u)
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
