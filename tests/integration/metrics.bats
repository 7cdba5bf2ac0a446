#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests that sharedgpu-exporter shows the state of a real arbiter, over HTTP and as a file.
load helpers

exporter() { "$BUILD/exporter/sharedgpu-exporter" --config "$DIR/conf" "$@"; }

# serve [USER...]: starts the exporter on a free port, as the user if one is given. URL is its address.
serve() {
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$@" "$BUILD/exporter/sharedgpu-exporter" --config "$DIR/conf" --listen "127.0.0.1:$port" 2>"$DIR/exporter.err" 3>&- &
  PIDS[exporter]=$!
  URL=http://127.0.0.1:$port/metrics
  until_true 20 scrape >/dev/null
}
scrape() { python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "$URL"; }
# metric NAME: prints the values of the series that begin with NAME, one per line.
metric() { scrape | awk -v name="$1" 'index($1, name) == 1 { print $NF }'; }
metric_is() { [[ $(metric "$1") == "$2" ]]; }

@test "the values agree with the ledger, and a series ends with its tenant" {
  export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml
  start_arbiter
  serve
  tenant one hold --bytes 75% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 75% --of 256MiB --seconds 600 --progress
  until_true 20 metric_is sharedgpu_gpu_queue_length 1
  until_true 20 metric_is sharedgpu_gpu_lease_holders 1
  # While a tenant waits, all its leases have ended. So the exporter and the ledger show the same lease time.
  python3 - "$SHAREDGPU" "$DIR" "$URL" <<'PYTHON'
import json, re, subprocess, sys, time, urllib.request
sharedgpu, folder, url = sys.argv[1:]
def ledger():
    text = subprocess.check_output([sharedgpu, "ledger", "--config", folder + "/conf", "--by", "tenant", "--format", "json"])
    return {row["tenant"]: row for row in json.loads(text)}
def series(text, name):
    found = re.findall(r"(?m)^%s\{(.*)\} (\S+)$" % name, text)
    return {re.search('tenant="(\\d+)"', labels)[1]: (labels, float(value)) for labels, value in found}
compared, moved, end = set(), 0, time.time() + 60
while len(compared) < 2 or moved == 0:
    assert time.time() < end, (compared, moved)
    before, text, after = ledger(), urllib.request.urlopen(url, timeout=20).read().decode(), ledger()
    moved = sum(value for _, value in series(text, "sharedgpu_tenant_evicted_bytes_total").values())
    for tenant, (labels, _) in series(text, "sharedgpu_tenant_info").items():
        name = re.search('name="([^"]*)"', labels)[1]
        seconds = series(text, "sharedgpu_tenant_lease_seconds_total")[tenant][1]
        if before.get(name) == after.get(name) and name in before and not before[name]["open"]:
            assert abs(seconds - before[name]["lease_seconds"]) < 1e-3, (name, seconds, before[name])
            compared.add(name)
assert all(value == 192 << 20 for _, value in series(text, "sharedgpu_tenant_footprint_bytes").values())
open(folder + "/last.prom", "w").write(text)
PYTHON
  promtool check metrics <"$DIR/last.prom"
  kill -9 "${PIDS[one]}" "${PIDS[two]}"
  until_true 20 metric_is sharedgpu_tenant ""
  metric_is sharedgpu_gpu_queue_length 0
}

@test "the energies of the tenants and the unleased energy add up to that of the GPU, over a restart of the arbiter" {
  export LD_LIBRARY_PATH=$BUILD/tests/simgpu:$BUILD/tests/simgpu/nvml
  start_arbiter
  tenant one hold --bytes 75% --of 256MiB --seconds 600 --progress
  tenant two hold --bytes 75% --of 256MiB --seconds 600 --progress
  attributed() { json_is 'all(sum(e["joules"] for e in t["energy"]) > 100 for t in s["tenants"])' True; }
  until_true 60 attributed
  # The arbiter attributes the energy since its first reading, so the sum is less than the GPU's total. The simulated
  # GPU's power is between 60 W and 360 W.
  timeout 20 "$SHAREDGPU" status --json >"$DIR/status.json"
  python3 - "$DIR/status.json" <<'PYTHON'
import json, sys
s = json.load(open(sys.argv[1]))
gpu, = s["gpus"]
split = gpu["unleased_energy_joules"] + sum(e["joules"] for t in s["tenants"] for e in t["energy"])
assert 200 < split < gpu["energy_joules"], (split, gpu)
leases = sum(t["lease_seconds"] for t in s["tenants"])
assert sum(e["joules"] for t in s["tenants"] for e in t["energy"]) < 361 * leases, (s["tenants"], leases)
assert 0 <= gpu["utilization"] <= 1
PYTHON
  kill "$ARBITER"
  wait "$ARBITER" || true
  run_arbiter
  attributed
}

@test "an unprivileged user gets all metrics" {
  ((UID == 0)) || skip "needs root to become another user"
  chmod 755 "$DIR"
  start_arbiter
  tenant one hold --bytes 10% --of 256MiB --seconds 600 --progress
  progresses one
  serve setpriv --reuid=65534 --regid=65534 --clear-groups
  (($(metric sharedgpu_tenant_footprint_bytes | wc -l) == 1))
  metric_is sharedgpu_up 1
}

@test "without an arbiter sharedgpu_up is 0, and the exporter serves on until the arbiter is back" {
  start_arbiter ArbiterTimeout=1s
  serve
  metric_is sharedgpu_up 1
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  metric_is sharedgpu_up 0
  metric_is sharedgpu_gpu ""
  grep -q "^sharedgpu-exporter: no arbiter at $SHAREDGPU_SOCKET" "$DIR/exporter.err"
  run_arbiter
  metric_is sharedgpu_up 1
  (($(wc -l <"$DIR/exporter.err") == 2))
  kill "${PIDS[exporter]}"
  succeeds exporter
}

@test "the file is written once, or again and again until a signal, which removes it" {
  start_arbiter
  exporter --textfile "$DIR/one.prom"
  promtool check metrics <"$DIR/one.prom"
  grep -qx 'sharedgpu_up 1' "$DIR/one.prom"
  "$BUILD/exporter/sharedgpu-exporter" --config "$DIR/conf" --textfile "$DIR/more.prom" --every 1 3>&- &
  PIDS[exporter]=$!
  is_up() { grep -qx "sharedgpu_up $1" "$DIR/more.prom"; }
  until_true 20 is_up 1
  kill -9 "$ARBITER"
  wait "$ARBITER" || true
  until_true 20 is_up 0
  kill "${PIDS[exporter]}"
  succeeds exporter
  [[ ! -e $DIR/more.prom ]]
}

@test "wrong options are errors that name the option and the value" {
  start_arbiter
  local port
  run -2 exporter
  [[ $output == *"--listen or --textfile is required"* ]]
  run -2 exporter --listen localhost:99999
  [[ $output == *"--listen: 'localhost:99999' is not ADDRESS:PORT"* ]]
  run -2 exporter --listen 127.0.0.1:1 --textfile a.prom
  run -2 exporter --textfile a.txt
  [[ $output == *"--textfile: 'a.txt' does not end in .prom"* ]]
  run -1 exporter --textfile "$DIR/none/a.prom"
  [[ $output == *"sharedgpu-exporter: $DIR/none/a.prom: No such file or directory"* ]]
  serve
  port=${URL#*127.0.0.1:}
  run -1 exporter --listen "127.0.0.1:${port%/*}"
  [[ $output == *"sharedgpu-exporter: --listen 127.0.0.1:${port%/*}: "* ]]
  echo "Nonsense=1" >>"$DIR/conf"
  run -2 exporter --textfile "$DIR/a.prom"
  [[ $output == *"$DIR/conf:"*"Nonsense"* ]]
}
