# SPDX-License-Identifier: Apache-2.0
# Completion of sharedgpu for bash. With this file, bash proposes the words that the command's --help lists.

# _sharedgpu_words SECTION COMMAND...: prints the first words of the lines of a section of a command's help.
_sharedgpu_words() {
  local section=$1
  shift
  "$@" --help 2>/dev/null | awk -v section="$section" '
    /^[A-Za-z].*:$/ { inside = tolower($0) ~ section; next }
    inside && /^  [^ ]/ { count = split($1, words, ","); for (i = 1; i <= count; ++i) print words[i] }'
}

_sharedgpu() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  case $previous in
    --config | --ledger | --socket) mapfile -t COMPREPLY < <(compgen -f -- "$current") && return ;;
  esac
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$(_sharedgpu_words '^(subcommands|options)' "$1")" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_sharedgpu_words '^options' "$1" "${COMP_WORDS[1]}")" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _sharedgpu sharedgpu
