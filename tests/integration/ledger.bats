#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests that `sharedgpu ledger` shows the real leases.
load helpers

ledger() { "$SHAREDGPU" ledger --config "$DIR/conf" "$@"; }

@test "turns of two tenants that cannot run together do not overlap, and steps and tenants add them up" {
  start_arbiter
  local begin=$EPOCHREALTIME
  tenant one hold --bytes 75% --of 256MiB --seconds 3 --verify
  tenant two hold --bytes 75% --of 256MiB --seconds 3 --verify
  all_succeed one two
  local by end=$EPOCHREALTIME
  for by in turn step tenant; do ledger --by "$by" --format json >"$DIR/$by.json"; done
  python3 - "$DIR" "$begin" "$end" <<'PYTHON'
import json, sys
from datetime import datetime
turns, steps, tenants = (json.load(open(f"{sys.argv[1]}/{by}.json")) for by in ("turn", "step", "tenant"))
begin, end = map(float, sys.argv[2:])
moment = lambda text: datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
assert len(tenants) == 2 and len(turns) > 2, (tenants, turns)
assert sum(row["turns"] for row in tenants) == len(turns)
for rows in steps, tenants:
    assert abs(sum(r["lease_seconds"] for r in rows) - sum(t["lease_seconds"] for t in turns)) < 1e-3, rows
# Each tenant begins its first turn without memory, so the first turns may overlap.
first = {turn["tenant"]: turn for turn in reversed(turns)}.values()
both = [turn for turn in turns if turn not in first]
for earlier, later in zip(both, both[1:]):
    assert moment(earlier["last"]) <= moment(later["first"]) + 1e-5, (earlier, later)
for turn in turns:
    assert not turn["open"] and begin - 0.1 <= moment(turn["first"]) <= moment(turn["last"]) <= end + 0.1, turn
    assert abs(moment(turn["last"]) - moment(turn["first"]) - turn["lease_seconds"]) < 1e-4, turn
PYTHON
}

@test "a lease that is held is shown as open" {
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses one
  [[ $(ledger --format csv | tail -n +2 | cut -d, -f9) == true ]]
}

@test "table, CSV and JSON have the same columns, and an empty ledger has them too" {
  start_arbiter
  local names=tenant,step,user,gpu,turns,lease_seconds,first,last,open,lost
  [[ $(ledger --format csv) == "$names" ]]
  [[ $(ledger | tr -s ' ' ,) == "$names" ]]
  [[ $(ledger --format json) == "[]" ]]
}

@test "a time window excludes leases before and after" {
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 1
  all_succeed one
  (($(ledger --format csv | wc -l) == 2))
  (($(ledger --format csv --since "$(date -d '1 hour ago' +%FT%T)" --until "$(date -d '1 hour' +%FT%T)" | wc -l) == 2))
  (($(ledger --format csv --until "$(date -d '1 hour ago' +%FT%T)" | wc -l) == 1))
  (($(ledger --format csv --since "$(date -d '1 hour' +%FT%T)" | wc -l) == 1))
  (($(ledger --format csv --job 7 | wc -l) == 1))
}

@test "damaged lines are skipped with a message, and an unreadable ledger is an error" {
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 1
  all_succeed one
  { cat "$DIR/state/ledger"; echo "00000000 nonsense"; } >"$DIR/copy"
  run -0 --separate-stderr ledger --format csv "$DIR/copy"
  ((${#lines[@]} == 2))
  [[ $stderr == "sharedgpu: $DIR/copy: passed over 1 damaged lines of "* ]]
  run -1 --separate-stderr ledger "$DIR/none"
  [[ $stderr == "sharedgpu: $DIR/none: No such file or directory" ]]
  run -2 --separate-stderr ledger --since yesterday
  [[ $stderr == "sharedgpu: --since: 'yesterday' is not a time as sacct takes it "* ]]
}

over() { [[ $(ledger --format csv | tail -n +2 | cut -d, -f9) == false ]]; }

@test "if a tenant dies without an arbiter, or with the host, its lease time in the ledger is about the last that was shown" {
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 600 --progress
  # During these four seconds, no event makes the arbiter write a record.
  until_true 60 json_is 's["tenants"][0]["lease_seconds"] > 4' True
  local shown
  shown=$(json 's["tenants"][0]["lease_seconds"]')
  kill -9 "$ARBITER" "${PIDS[one]}"
  wait "$ARBITER" || true
  finish one || true
  # The copy has the state of the ledger before the next start of the arbiter.
  cp "$DIR/state/ledger" "$DIR/copy"
  run_arbiter
  until_true 20 over
  ledger --format json >"$DIR/anew.json"
  "$SHAREDGPU" ledger --format json "$DIR/copy" >"$DIR/copy.json"
  python3 - "$DIR" "$shown" <<'PYTHON'
import json, sys
for name in "anew", "copy":
    (row,) = json.load(open(f"{sys.argv[1]}/{name}.json"))
    assert row["lease_seconds"] > float(sys.argv[2]) - 3, (name, row, sys.argv[2])
PYTHON
}

@test "a lease whose end is damaged ends before the damage, also for the arbiter that reads it; files are sorted" {
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses one
  until_true 20 json_is 's["tenants"][0]["lease_seconds"] > 1' True
  kill "$ARBITER" && wait "$ARBITER"
  kill -9 "${PIDS[one]}"
  finish one || true
  mkdir "$DIR/files"
  # The lease ends after 10 s, but the record of its end is unreadable. The lease is granted again after 30 s, for 10 s.
  # Readable records follow. All times are within the first 40 s since boot, because the machine may have been up for
  # only a few minutes.
  python3 - "$DIR" <<'PYTHON'
import sys
folder = sys.argv[1]
table = [0] * 256
for i in range(256):
    crc = i
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    table[i] = crc
def line(time, text):
    body = f" {int(time * 1e9)} {text}"
    crc = 0xFFFFFFFF
    for byte in body.encode():
        crc = (crc >> 8) ^ table[(crc ^ byte) & 255]
    return f"{crc ^ 0xFFFFFFFF:08x}{body}\n"
boot = next(each for each in open(f"{folder}/state/ledger") if " boot " in each).split(" ", 3)[3].strip()
key = "1 " + "ab" * 16 + " 7 0"
old = [line(0, "boot " + boot), line(0, "tenant 1 0 job 7"), line(0, "grant 5 " + key), line(9, "seen"),
       "00000000 damaged\n", line(20, "seen"), line(30, "grant 6 " + key), line(40, "release 6 " + key)]
new = [line(40, "checkpoint 1 0 6"), line(40, "boot " + boot), line(40, "tenant 1 0 job 7"),
       line(40, "complete"), line(50, "grant 7 " + key), line(80, "release 7 " + key)]
open(f"{folder}/state/ledger", "w").writelines(old)
open(f"{folder}/files/ledger.1", "w").writelines(old)
open(f"{folder}/files/ledger", "w").writelines(new)
PYTHON
  run_arbiter
  json_is '[round(t["lease_seconds"]) for t in s["tenants"]]' '[]' # the lease has ended, and no tenant waits
  run -0 --separate-stderr ledger --by step --format csv
  [[ $(tail -n 1 <<<"$output" | cut -d, -f6) == 19.0 ]]
  local files
  for files in "ledger ledger.1" "ledger.1 ledger"; do
    # shellcheck disable=SC2086
    run -0 --separate-stderr bash -c "cd '$DIR/files' && '$SHAREDGPU' ledger --by step --format csv $files"
    [[ $(tail -n 1 <<<"$output" | cut -d, -f6) == 49.0 ]]
  done
}
