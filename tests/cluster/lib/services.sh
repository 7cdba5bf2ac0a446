# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Starts and stops the daemons of the cluster in $dir.
#
# Each daemon runs in the foreground in a Unix session of its own; its pid is in $dir/run/SERVICE.pid. The
# environment variable SHAREDGPU_CLUSTER marks the daemon and the processes that it starts (slurmstepd, the
# arbiter), so that `down` finds all of them.

# The command of each service, one argument per line.
command_of() {
  case $1 in
    munged)
      printf '%s\n' munged --foreground --force --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.sock" \
        --pid-file="$dir/run/munged-self.pid" --log-file="$dir/log/munged-self" --seed-file="$dir/run/munge.seed" ;;
    mariadbd)
      # The options prefer speed to safety, since this database exists only for minutes. They switch off snapshot
      # isolation (the default since MariaDB 11.6), since with it slurmdbd ends at a conflict of two writes.
      printf '%s\n' mariadbd --no-defaults --user=root --datadir="$dir/mysql" --tmpdir="$dir/run" --socket="$dir/run/mysql.sock" \
        --pid-file="$dir/run/mariadbd-self.pid" --skip-networking --innodb-buffer-pool-size=32M --skip-log-bin \
        --innodb-flush-method=nosync --innodb-flush-log-at-trx-commit=0 --skip-innodb-doublewrite \
        --loose-innodb-snapshot-isolation=OFF ;;
    slurmdbd) printf '%s\n' slurmdbd -D ;;
    slurmctld) printf '%s\n' slurmctld -D -f "$dir/etc/slurm.conf" ;;
    slurmd[1-9])
      local i=${1#slurmd}
      if has_hosts; then
        printf '%s\n' unshare --mount --uts "$here/lib/as-host" "$(node "$i")" \
          "$dir/host$i/sharedgpu.conf" "$dir/etc/sharedgpu.conf" "$(gpu_folder "$i")" "$(gpu_folder)" --
      fi
      if [[ -e $dir/gpus$i ]]; then printf '%s\n' unshare --mount "$here/lib/with-gpus" "$dir/gpus$i"; fi
      printf '%s\n' slurmd -D -f "$dir/etc/slurm.conf" -N "$(node "$i")" ${SLURMD_BOOTED:+-b} ;;
    *) return 1 ;;
  esac
}

# Succeeds if the service answers.
is_ready() {
  case $1 in
    munged) munge -S "$dir/run/munge.sock" -n >/dev/null 2>&1 ;;
    mariadbd) [[ -S $dir/run/mysql.sock ]] ;;
    # Checks the port first: a client that connects too early may wait longer than the daemon needs to start.
    slurmdbd) port_answers $((CLUSTER_PORT + 1)) && SLURM_CONF=$dir/etc/slurm.conf timeout 3 sacctmgr -n show cluster >/dev/null 2>"$dir/log/sacctmgr" ;;
    slurmctld) SLURM_CONF=$dir/etc/slurm.conf timeout 3 scontrol ping 2>/dev/null | grep -q UP ;;
    # slurmctld may report a node as up although its slurmd has ended. So this also checks that slurmd answers.
    slurmd[1-9])
      port_answers $((CLUSTER_PORT + 1 + ${1#slurmd})) &&
        [[ $(SLURM_CONF=$dir/etc/slurm.conf timeout 3 sinfo -h -n "$(node "${1#slurmd}")" -o %T 2>/dev/null) =~ ^(idle|mixed|allocated|completing)$ ]] ;;
  esac
}

# A zombie (init may be slow to wait for it) counts as ended.
gone() {
  local state
  state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 0
  [[ -z $state || $state == Z || $state == X ]]
}

alive() { [[ -e $dir/run/$1.pid ]] && ! gone "$(<"$dir/run/$1.pid")"; }

start_service() {
  local service=$1 command
  mapfile -t command < <(command_of "$service")
  ((${#command[@]})) || { echo "cluster: no service '$service'" >&2; return 2; }
  if alive "$service"; then return 0; fi
  (
    # shellcheck disable=SC1091
    source "$dir/env"
    unset SHAREDGPU_SOCKET # only users need this variable; daemons read the socket from their configuration
    export SHAREDGPU_CLUSTER=$dir SLURM_CONF=$dir/etc/slurm.conf MYSQL_UNIX_PORT=$dir/run/mysql.sock
    cd "$dir"
    close_inherited_files
    exec setsid "${command[@]}" </dev/null >>"$dir/log/$service.out" 2>&1
  ) &
  echo $! >"$dir/run/$service.pid"
  disown
  wait_until "${CLUSTER_PATIENCE:-30}" is_ready "$service" || { echo "cluster: $service did not come up" >&2; return 1; }
}

# Closes all descriptors but the standard ones. If a daemon kept the descriptors of bats or of a pipeline open, bats or
# the pipeline would wait for the daemon.
close_inherited_files() {
  local fd
  for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    if ((fd > 2 && fd != 255)); then eval "exec $fd>&-"; fi
  done
}

# wait_until SECONDS COMMAND...
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}

stop_service() {
  local service=$1 signal=$2 pid
  [[ -e $dir/run/$service.pid ]] || return 0
  pid=$(<"$dir/run/$service.pid")
  if kill "-$signal" "$pid" 2>/dev/null; then
    wait_until 10 gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$dir/run/$service.pid"
}

services() { printf '%s\n' munged mariadbd slurmdbd slurmctld && each_node slurmd; }

is_up() {
  local service
  load_settings
  for service in $(services); do alive "$service" || return 1; done
}

start_everything() {
  prepare_cgroups
  start_service munged || return
  if [[ ! -d $dir/mysql/mysql ]]; then create_database || return; fi
  start_service mariadbd && start_service slurmdbd && start_service slurmctld || return
  local service start starts=()
  for service in $(each_node slurmd); do
    start_service "$service" &
    starts+=($!)
  done
  for start in "${starts[@]}"; do wait "$start" || return; done
}

# Each cluster has its own tmpdir: when a MariaDB server starts, it deletes the temporary tables of all servers with the
# same tmpdir.
create_database() {
  mariadb-install-db --no-defaults --user=root --datadir="$dir/mysql" --tmpdir="$dir/run" --auth-root-authentication-method=normal \
    --skip-name-resolve --skip-test-db --force >"$dir/log/install_db.out" 2>&1 &&
    mariadbd --no-defaults --user=root --datadir="$dir/mysql" --tmpdir="$dir/run" --bootstrap --skip-networking >>"$dir/log/install_db.out" 2>&1 <<'SQL'
flush privileges;
create user slurm@localhost identified by 'slurm';
grant all on slurm_acct_db.* to slurm@localhost;
SQL
}

# Prints the processes of this cluster: processes with its SHAREDGPU_CLUSTER, and processes in its control groups.
processes() {
  local pid
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    if [[ $pid == "$$" ]]; then continue; fi
    if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qxF "SHAREDGPU_CLUSTER=$dir"; then
      echo "$pid"
    fi
  done 2>/dev/null
  local name
  if [[ ${CLUSTER_NAME-} ]]; then
    for name in $(each_node "$CLUSTER_NAME"); do processes_in_cgroups_of_node "$name"; done
  fi
}

none_left() {
  local pid
  for pid in $(processes); do gone "$pid" || return 1; done
}

kill_processes() { processes | xargs -r kill "-$1" 2>/dev/null || true; }

stop_everything() {
  [[ -d $dir/run ]] || return 0
  if alive slurmctld; then
    SLURM_CONF=$dir/etc/slurm.conf timeout 5 scancel --full --signal=KILL --user=root 2>/dev/null || true
  fi
  local service name
  for service in $(services | tac); do stop_service "$service" TERM; done
  kill_processes TERM
  wait_until 3 none_left || kill_processes KILL
  wait_until 5 none_left || { echo "cluster: these processes do not end: $(processes | xargs)" >&2; return 1; }
  if [[ ${CLUSTER_NAME-} ]]; then
    for name in $(each_node "$CLUSTER_NAME"); do remove_cgroups_of_node "$name"; done
    rm -rf "$(gpu_folder)"*
  fi
}
