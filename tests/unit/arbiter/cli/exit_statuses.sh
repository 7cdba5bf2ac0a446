#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the exit statuses of the command and the daemon in many situations.
#   exit_statuses.sh SHAREDGPU SHAREDGPUD
set -euo pipefail
sharedgpu=$1 sharedgpud=$2
unset SHAREDGPU_SOCKET SHAREDGPU_TOKEN SHAREDGPU_ARBITER_TIMEOUT CUDA_VISIBLE_DEVICES
export SHAREDGPU_ON_NO_ARBITER=plain
folder=$(mktemp -d)
daemon=""
end() {
  [[ ! $daemon ]] || kill -KILL "$daemon" 2>/dev/null || true
  rm -rf "$folder"
}
trap end EXIT

# of SITUATION COMMAND...: runs COMMAND and prints its exit status and SITUATION.
of() {
  local situation=$1 status=0
  shift
  timeout 30 "$@" </dev/null >"$folder/said" 2>&1 || status=$?
  printf '%3d  %s\n' "$status" "$situation"
}
title() { printf '\n# %s\n' "$1"; }
conf() {
  printf '%s\n' "Socket=$folder/s.sock" "StateDir=$folder/state" "LogFile=$folder/log" ArbiterTimeout=100ms "$@"
}

conf >"$folder/conf"
conf "AdminUsers=$(id -u)" >"$folder/admin.conf"
conf NoSuchKey=1 >"$folder/wrong.conf"
conf Quantum=never >"$folder/bad.conf"
touch "$folder/not_executable"
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 3\n' >"$folder/bin/sacct"
chmod +x "$folder/bin/sacct"
own=(--config "$folder/conf")

echo "# SPDX-License-Identifier: Apache-2.0"
echo "# Made by exit_statuses.sh; tests/golden says how to write it again."

title "command lines"
for program in "$sharedgpu" "$sharedgpud"; do
  name=${program##*/}
  of "$name --help" "$program" --help
  of "$name --version" "$program" --version
  of "$name: no such option" "$program" --none
done
of "status --config: no file" "$sharedgpu" status --config
of "sharedgpud --config: no file" "$sharedgpud" --config
of "sharedgpu: no subcommand" "$sharedgpu"
of "sharedgpu: no such subcommand" "$sharedgpu" none
of "run: no command" "$sharedgpu" run "${own[@]}"
for wrong in --memory=much --share=200 --share=60:50 --priority=2000 --deadline=soon --backend=other --gpus=13 \
  --gpus=0 --summary=maybe --deadline-from-stderr --user=nobody-here; do
  of "run $wrong" "$sharedgpu" run "${own[@]}" "$wrong" -- true
done
CUDA_VISIBLE_DEVICES=0 of "run --gpus=2: the user has chosen GPUs" "$sharedgpu" run "${own[@]}" --gpus=2 -- true
of "oci: not a container's configuration" "$sharedgpu" oci
of "oci --bundle: no config.json" "$sharedgpu" oci --bundle "$folder"
of "set: nothing to set" "$sharedgpu" set "${own[@]}"
for wrong in quantum none=1 quantum=never socket=/x; do of "set $wrong" "$sharedgpu" set "${own[@]}" "$wrong"; done
of "sharedgpu: a misspelled subcommand" "$sharedgpu" stauts
of "status: a misspelled option" "$sharedgpu" status --jsn
of "set --list and a change" "$sharedgpu" set "${own[@]}" --list quantum=1s
of "set --list --clear" "$sharedgpu" set "${own[@]}" --list --clear
of "top --sort other" "$sharedgpu" top "${own[@]}" --sort other
of "top --interval 1ms" "$sharedgpu" top "${own[@]}" --interval 1ms
of "trace --svg --json" "$sharedgpu" trace "${own[@]}" --svg --json
of "trace --until yesterday" "$sharedgpu" trace "${own[@]}" --until yesterday
of "ledger --since after --until" "$sharedgpu" ledger "${own[@]}" --since now --until now-1hour
of "ledger --by other" "$sharedgpu" ledger "${own[@]}" --by other
of "ledger --format other" "$sharedgpu" ledger "${own[@]}" --format other
of "ledger --since yesterday" "$sharedgpu" ledger "${own[@]}" --since yesterday
of "report --since yesterday" "$sharedgpu" report "${own[@]}" --since yesterday
of "report --units-per-gpu 0" "$sharedgpu" report "${own[@]}" --units-per-gpu 0

title "settings"
for subcommand in gres status top set ledger trace report supervise run; do
  words=()
  [[ $subcommand != set ]] || words=(quantum=1s)
  [[ $subcommand != run ]] || words=(-- true)
  of "$subcommand: an unknown key" "$sharedgpu" "$subcommand" --config "$folder/wrong.conf" "${words[@]}"
done
of "run --join: an unknown key" "$sharedgpu" run --join --config "$folder/wrong.conf" -- true
of "sharedgpud: an unknown key" "$sharedgpud" --config "$folder/wrong.conf"
of "sharedgpud: a bad value" "$sharedgpud" --config "$folder/bad.conf"
of "sharedgpud: no such file" "$sharedgpud" --config "$folder/none"
echo "Socket=/dev/null/s.sock" >"$folder/nowhere.conf"
of "sharedgpud: no folder for the socket" "$sharedgpud" --config "$folder/nowhere.conf"

of "sharedgpud --check: good" "$sharedgpud" --check "$folder/conf"
of "sharedgpud --check: an unknown key" "$sharedgpud" --check "$folder/wrong.conf"
of "sharedgpud --check: no such file" "$sharedgpud" --check "$folder/none"
of "sharedgpud --check: an empty name" "$sharedgpud" --check ""
of "doctor --list" "$sharedgpu" doctor --list
of "doctor: no such check" "$sharedgpu" doctor "${own[@]}" none
of "doctor config: good" "$sharedgpu" doctor "${own[@]}" config
of "doctor config: an unknown key" "$sharedgpu" doctor --config "$folder/wrong.conf" config

title "no arbiter"
of "reload" "$sharedgpu" reload "${own[@]}"
of "status" "$sharedgpu" status "${own[@]}"
of "status --json" "$sharedgpu" status "${own[@]}" --json
of "status --me" "$sharedgpu" status "${own[@]}" --me
of "top --once" "$sharedgpu" top "${own[@]}" --once
of "set" "$sharedgpu" set "${own[@]}" quantum=1s
of "set --list" "$sharedgpu" set "${own[@]}" --list
of "trace: there is no ledger" "$sharedgpu" trace "${own[@]}"
of "ledger: there is none" "$sharedgpu" ledger "${own[@]}"
PATH=$folder/bin:$PATH of "report: sacct fails" "$sharedgpu" report "${own[@]}"
of "run" "$sharedgpu" run "${own[@]}" -- true
conf OnNoArbiter=fail >"$folder/fail.conf"
SHAREDGPU_ON_NO_ARBITER="" of "run: OnNoArbiter=fail" "$sharedgpu" run --config "$folder/fail.conf" -- true

# Exit statuses of `run` for each way in which its command can end.
runs() {
  of "run: the command succeeds" "$sharedgpu" run "${own[@]}" "$@" -- true
  of "run: the command exits with 7" "$sharedgpu" run "${own[@]}" "$@" -- sh -c 'exit 7'
  of "run: the command is not found" "$sharedgpu" run "${own[@]}" "$@" -- "$folder/none"
  of "run: the command is not executable" "$sharedgpu" run "${own[@]}" "$@" -- "$folder/not_executable"
  # shellcheck disable=SC2016
  of "run: the command dies by SIGTERM" "$sharedgpu" run "${own[@]}" "$@" -- sh -c 'kill -TERM $$'
}
title "no arbiter: the command that is run"
runs

title "an arbiter"
"$sharedgpud" --config "$folder/admin.conf" &
daemon=$!
for ((i = 0; i < 400; ++i)); do
  ! "$sharedgpu" status "${own[@]}" >/dev/null 2>&1 || break
  sleep 0.05
done
of "status" "$sharedgpu" status "${own[@]}"
of "status --json" "$sharedgpu" status "${own[@]}" --json
of "status: its output cannot be written" sh -c '"$@" >/dev/full' sh "$sharedgpu" status "${own[@]}"
# Without a buffer, the write of the first part of the output fails.
of "status: a part of its output cannot be written" sh -c '"$@" >/dev/full' sh stdbuf -o0 "$sharedgpu" status "${own[@]}"
of "status --me" "$sharedgpu" status "${own[@]}" --me
of "top: no terminal" "$sharedgpu" top "${own[@]}"
of "top --once" "$sharedgpu" top "${own[@]}" --once --interval 500ms
of "set" "$sharedgpu" set "${own[@]}" quantum=1s
of "reload" "$sharedgpu" reload "${own[@]}"
of "set --list" "$sharedgpu" set "${own[@]}" --list
of "set: clears" "$sharedgpu" set "${own[@]}" Quantum=
of "set: clears what is not set" "$sharedgpu" set "${own[@]}" Quantum=
of "trace" "$sharedgpu" trace "${own[@]}"
echo "no ledger" >"$folder/other"
of "ledger: a file that is no ledger" "$sharedgpu" ledger "$folder/other"
of "trace: a file that is no ledger" "$sharedgpu" trace "$folder/other"
of "ledger" "$sharedgpu" ledger "${own[@]}"
of "ledger: no such file" "$sharedgpu" ledger "${own[@]}" "$folder/none"
of "sharedgpud: another one serves the socket" "$sharedgpud" --config "$folder/conf"
runs
title "an arbiter: the command that is run, and its standard error is read"
runs --deadline 33ms --deadline-from-stderr

title "the end"
status=0
kill -TERM "$daemon"
wait "$daemon" || status=$?
daemon=""
printf '%3d  %s\n' "$status" "sharedgpud: SIGTERM"
"$sharedgpu" supervise "${own[@]}" 2>/dev/null &
daemon=$!
for ((i = 0; i < 400; ++i)); do
  ! "$sharedgpu" status "${own[@]}" >/dev/null 2>&1 || break
  sleep 0.05
done
of "supervise: another one is at work" "$sharedgpu" supervise "${own[@]}"
status=0
kill -TERM "$daemon"
wait "$daemon" || status=$?
daemon=""
printf '%3d  %s\n' "$status" "supervise: SIGTERM"
