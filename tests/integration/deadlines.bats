#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests Policy=deadline: a program reports its deadlines, and tenants of a lower priority get less time.
load helpers

# paced NAME OPTION... -- ARGUMENT...: starts a program with deadlines, with these options of `sharedgpu run`.
paced() {
  local name=$1 options=()
  shift
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  "$SHAREDGPU" run "${options[@]}" -- "$PROGRAMS/paced" "$@" >"$DIR/$name.out" 2>"$DIR/$name.err" 3>&- &
  PIDS[$name]=$!
}

# of_paced FIELD: prints a field of the tenant with a deadline.
of_paced() { json "[t[\"$1\"] for t in s[\"tenants\"] if t[\"deadline_seconds\"] > 0][0]"; }
told() { (($(of_paced deadlines_met) + $(of_paced deadlines_missed) >= $1)); }
# allowed_is CONDITION: succeeds if `share_allowed` of the tenant without a deadline meets the condition, such as '==
# 1'. This value is the greatest part of the GPU's time that the tenant may use.
allowed_is() { json_is "[t['share_allowed'] $1 for t in s['tenants'] if t['deadline_seconds'] == 0][0]" True; }
tenants_are() { json_is 'len(s["tenants"])' "$1"; }

background() {
  "$SHAREDGPU" run --priority -1 -- "$PROGRAMS/hold" --bytes 10% --of 256MiB --changes 1 --kernel-ms 5 --seconds 600 \
    --progress >"$DIR/background.out" 2>"$DIR/background.err" 3>&- &
  PIDS[background]=$!
  progresses background
}

@test "missed deadlines take time from tenants of a lower priority, until deadlines are met or no reports come" {
  start_arbiter Policy=deadline Quantum=auto
  background
  allowed_is '== 1'
  paced never --deadline 1ms -- --pieces 100000 --deadline-ms 0
  until_true 60 told 4
  until_true 20 allowed_is '== 0.125' # the tenant's request: one unit of eight
  json_is '[t["deadlines_met"] for t in s["tenants"]]' '[0, 0]'
  json_is '[t["share_limit"] for t in s["tenants"]]' '[1.0, 1.0]'
  timeout 10 "$SHAREDGPU" status | grep -q 'deadlines 0 met, [0-9]* missed'
  timeout 10 "$SHAREDGPU" status | grep -q 'at most 12.5%'
  kill "${PIDS[never]}"
  until_true 20 allowed_is '== 1'
  paced always --deadline 10s -- --pieces 100000 --deadline-ms 10000
  until_true 60 told 4
  json_is 'sum(t["deadlines_missed"] for t in s["tenants"])' 0
  allowed_is '== 1'
}


# counted_right NAME: succeeds if the arbiter's counts equal the program's own counts.
counted_right() {
  [[ "$(of_paced deadlines_met) met, $(of_paced deadlines_missed) missed" == \
    $(sed -n 's/.*: \([0-9]* met, [0-9]* missed\) in all/\1/p' "$DIR/$1.out") ]]
}

@test "the arbiter counts a program's reports by the pipe and by stderr, and stderr arrives unchanged" {
  start_arbiter Policy=deadline
  paced pipe --deadline 20ms -- --pieces 30 --period-ms 5 --kernel-ms 1 --stay 600
  until_true 60 told 30
  until_true 20 counted_right pipe
  kill "${PIDS[pipe]}"
  until_true 20 tenants_are 0

  # On a busy host, the first kernel and sometimes a later kernel may miss the deadline.
  paced stderr --deadline 20ms --deadline-from-stderr -- --pieces 30 --period-ms 5 --kernel-ms 1 --report stderr --stay 600
  until_true 60 told 30
  until_true 20 counted_right stderr
  [[ $(grep -cE '^(pass|missed)$' "$DIR/stderr.err") == 30 ]]
  kill "${PIDS[stderr]}"
  finish stderr
  ((status == 143)) # `sharedgpu run` forwards the signal, and dies of it like the program
}

@test "a run ends as its command does, even if its stderr is read, and no other run inherits its deadlines" {
  start_arbiter
  run --separate-stderr "$SHAREDGPU" run --deadline 1s --deadline-from-stderr -- \
    sh -c 'echo out; echo missed >&2; printf "no newline" >&2; exit 7'
  ((status == 7))
  [[ $output == out && $stderr == $'missed\nno newline' ]]
  run "$SHAREDGPU" run --deadline 1s --deadline-from-stderr -- sh -c 'kill -9 $$'
  ((status == 137))
  # The exit status is the same if the parent ignores SIGCHLD, or has closed stderr.
  local careless=(python3 -c 'import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])')
  run "${careless[@]}" "$SHAREDGPU" run --deadline 1s --deadline-from-stderr -- sh -c 'exit 7'
  ((status == 7))
  run "${careless[@]}" "$SHAREDGPU" run --deadline 1s --deadline-from-stderr -- grep SigIgn /proc/self/status
  (((0x${output##*[[:space:]]} >> 16 & 1) == 1)) # the command ignores SIGCHLD, as without `sharedgpu run`
  run bash -c '"$@" 2>&-' bash "$SHAREDGPU" run --deadline 1s --deadline-from-stderr -- sh -c 'echo missed >&2 || exit 6; exit 7'
  ((status == 7))
  # Background processes that the command leaves do not block `sharedgpu run`.
  run timeout 20 "$SHAREDGPU" run --deadline 1s --deadline-from-stderr -- sh -c 'sleep 30 >/dev/null & exit 0'
  ((status == 0))
  # A slow reader loses no output, even with a non-blocking pipe.
  python3 - "$SHAREDGPU" <<'END'
import os, subprocess, sys, time
reading, writing = os.pipe()
os.set_blocking(writing, False)
wrapper = subprocess.Popen([sys.argv[1], "run", "--deadline", "1s", "--deadline-from-stderr", "--", "sh", "-c",
                            "head -c 1000000 /dev/zero >&2"], stderr=writing)
os.close(writing)
time.sleep(0.5)
size = 0
while piece := os.read(reading, 65536):
    size += len(piece)
assert size == 1000000 and wrapper.wait() == 0, (size, wrapper.returncode)
END
  run "$SHAREDGPU" run --deadline 33ms -- env
  [[ $output == *SHAREDGPU_DEADLINE=0.033$'\n'* && $output == *SHAREDGPU_DEADLINE_FD=* ]]
  run "$SHAREDGPU" run --deadline 33ms -- "$SHAREDGPU" run -- env
  [[ $output != *SHAREDGPU_DEADLINE* ]]
  run "$SHAREDGPU" run --deadline never -- true
  ((status == 2))
  run "$SHAREDGPU" run --deadline-from-stderr -- true
  ((status == 2))
}

@test "a command whose stderr is read gets the same arguments, signals and ends of files as otherwise" {
  start_arbiter
  local words=('' a '[x,y]' '[]' '{}' '[[a],[b]]' '%%' '++' -- b --gpus 3 status '"q,r"' 'a,b' '\n') dashes
  for dashes in "" "--"; do
    # shellcheck disable=SC2086
    run -0 "$SHAREDGPU" run --priority -3 --memory=64MiB $dashes printf '<%s>' "${words[@]}"
    [[ $output == "$(printf '<%s>' "${words[@]}")" ]]
  done
  local option
  for option in memory share deadline backend user priority units gpus; do
    run "$SHAREDGPU" run "--$option" "" -- true
    ((status == 2))
    [[ $output == *"--$option"* ]]
  done
  local bad
  for bad in priority=1001 units=0 units=1000001 gpus=13 gpus=-1; do
    run "$SHAREDGPU" run "--$bad" -- true
    ((status == 2))
    [[ $output == *"--${bad%=*}: '${bad#*=}' is not a number from "* ]]
  done
  python3 - "$SHAREDGPU" <<'END'
import os, pty, signal, subprocess, sys, time
wrapped = [sys.argv[1], "run", "--deadline", "1s", "--deadline-from-stderr", "--"]

def start(program, **more):
    return subprocess.Popen([*wrapped, "python3", "-uc", "import os, signal, sys, time\n" + program],
                            stdout=subprocess.PIPE, text=True, **more)

# Each signal that is sent to the wrapper (`sharedgpu run`) alone reaches the command, and the wrapper continues.
numbers = [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU,
           signal.SIGWINCH, signal.SIGCONT, signal.SIGPIPE, signal.SIGABRT, signal.SIGSEGV, signal.SIGTSTP,
           signal.SIGRTMIN + 2]
process = start(f"""for number in {[int(each) for each in numbers]}:
    signal.signal(number, lambda seen, _: print(seen, flush=True))
print('ready', os.getpid(), flush=True)
while True: time.sleep(10)""")
command = int(process.stdout.readline().split()[1])
for number in numbers:
    process.send_signal(number)
    seen = process.stdout.readline().strip()
    assert seen == str(int(number)), (number, seen)
process.kill()
while os.path.exists(f"/proc/{command}"):  # killing the wrapper kills the command
    time.sleep(0.01)

# Signals that the wrapper's parent had blocked reach the command too.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
process = start("signal.pthread_sigmask(signal.SIG_SETMASK, []); print('ready', flush=True); time.sleep(60)")
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
process.stdout.readline()
process.send_signal(signal.SIGTERM)
assert process.wait() == -signal.SIGTERM

# The wrapper stops and continues with the command.
process = start("print(os.getpid(), flush=True); time.sleep(60)", start_new_session=False)
command = int(process.stdout.readline())
for number, state in (signal.SIGTSTP, "T"), (signal.SIGCONT, "S"):
    process.send_signal(number)
    for each in process.pid, command:
        while open(f"/proc/{each}/stat").read().rpartition(") ")[2][0] != state:
            time.sleep(0.01)
process.kill()

# A process that stops only the command, and not the wrapper, can also continue or kill only the command.
process = start("print(os.getpid(), flush=True); time.sleep(1)")
command = int(process.stdout.readline())
os.kill(command, signal.SIGSTOP)
while open(f"/proc/{command}/stat").read().rpartition(") ")[2][0] != "T":
    time.sleep(0.01)
os.kill(command, signal.SIGCONT)
assert process.wait() == 0
process = start("print(os.getpid(), flush=True); time.sleep(60)")
command = int(process.stdout.readline())
os.kill(command, signal.SIGSTOP)
os.kill(command, signal.SIGKILL)
assert process.wait() == -signal.SIGKILL

# The wrapper ends when its terminal is closed.
child, terminal = pty.fork()
if child == 0:
    os.execv(wrapped[0], [*wrapped, "sh", "-c", "echo ready; sleep 60"])
while b"ready" not in os.read(terminal, 100):
    pass
os.close(terminal)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGHUP

# The wrapper ends at once, even if its output is not read, and at any time after its start.
reading, writing = os.pipe()
process = start("print('ready', flush=True); os.write(2, b'x' * 1000000)", stderr=writing)
process.stdout.readline()
time.sleep(0.3)
process.send_signal(signal.SIGTERM)
assert process.wait() == -signal.SIGTERM
for fd in reading, writing:
    os.close(fd)
for i in range(40):
    process = subprocess.Popen([*wrapped, "sleep", "61.5"])
    time.sleep(i / 2000)
    process.kill()
    process.wait()
while subprocess.run(["pgrep", "-fx", "sleep 61.5"], stdout=subprocess.DEVNULL).returncode == 0:
    time.sleep(0.01)

# If the command closes its stdout, the reader gets the end of the stream.
process = start("os.close(1); sys.stdin.readline()", stdin=subprocess.PIPE)
assert process.stdout.read() == ""
assert process.poll() is None
process.stdin.write("\n")
process.stdin.flush()
assert process.wait() == 0

# The wrapper and the command end if their stderr has no reader.
reading, writing = os.pipe()
process = start("while True: print('text', file=sys.stderr); time.sleep(0.01)", stderr=writing)
os.close(writing)
os.read(reading, 1)
os.close(reading)
process.wait()
END
}

@test "the Python module reports deadlines from a process that uses no GPU, and does nothing outside a run" {
  start_arbiter Policy=deadline
  export PYTHONPATH=$BATS_TEST_DIRNAME/../../python
  cat >"$DIR/frames.py" <<'END'
import subprocess, sys, time
import sharedgpu_deadline as sharedgpu
program = subprocess.Popen(sys.argv[1:], close_fds=False)
for i in range(20):
    with sharedgpu.deadline():
        pass
with sharedgpu.deadline(0.01):
    time.sleep(0.02)
try:
    with sharedgpu.deadline():
        raise ValueError
except ValueError:
    assert sharedgpu.tell(True)
program.wait()
END
  "$SHAREDGPU" run --deadline 1h -- python3 "$DIR/frames.py" "$PROGRAMS/paced" --report no --stay 600 \
    >"$DIR/python.out" 2>"$DIR/python.err" 3>&- &
  PIDS[python]=$!
  until_true 60 told 23
  [[ $(of_paced deadlines_met) == 21 && $(of_paced deadlines_missed) == 2 ]]
  kill "$(pgrep -P "${PIDS[python]}")"
  # A program without the pipe reports nothing, and no error occurs.
  python3 -c 'import sharedgpu_deadline as s
with s.deadline(): pass
assert not s.tell(True)'
}
