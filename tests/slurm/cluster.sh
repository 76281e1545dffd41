#!/usr/bin/env bash
# A real SLURM of one node on this machine, for tests: controller, node daemon and authentication, all below one folder.
#
#   tests/slurm/cluster.sh install        the Debian packages (needs root)
#   tests/slurm/cluster.sh up FOLDER      start; then `export SLURM_CONF=FOLDER/slurm.conf` for sinfo, sbatch, sweep, ...
#   tests/slurm/cluster.sh down FOLDER    cancel its jobs and stop the daemons that `up` started there
#
# There is no accounting database, as on many small clusters: sacct answers nothing, and attnlab does not ask it. A job is
# preempted by one in the partition `high`. cred_expire is short because a requeued job waits that long before it may start again.
set -euo pipefail

install() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends munge slurmctld slurmd slurm-client > /dev/null
}

configure() {
  local host memory user
  host=$(hostname -s)
  user=$(id -un)
  memory=$(($(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 - 512))
  cat > "$folder/slurm.conf" << CONF
ClusterName=attnlab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${SLURM_TEST_PORT:-16817}
SlurmdPort=$((${SLURM_TEST_PORT:-16817} + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
KillWait=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=high Nodes=$host MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
}

authenticate() {  # munged wants folders that only root or its own user can write to
  local flags=(--key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid")
  flags+=(--seed-file="$folder/munge/seed" --log-file="$folder/munge/log")
  mkdir -p -m 755 "$folder/munge"
  [ -s "$folder/munge/key" ] || (umask 077 && head -c 128 /dev/urandom > "$folder/munge/key")
  if [ "$(id -u)" = 0 ]; then
    chown -R munge: "$folder/munge"
    runuser -u munge -- munged "${flags[@]}"
  else
    munged "${flags[@]}"
  fi
}

up() {
  mkdir -p "$folder"/{state,spool,log}
  configure
  export SLURM_CONF="$folder/slurm.conf"
  authenticate
  slurmctld
  slurmd
  for _ in $(seq 60); do
    sinfo -h -p main -o %T 2> /dev/null | grep -q idle && return 0
    sleep 0.5
  done
  echo "the node did not come up; see $folder/log" >&2
  exit 1
}

down() {
  export SLURM_CONF="$folder/slurm.conf"
  scancel --quiet --user="$(id -un)" 2> /dev/null || true
  for _ in $(seq 60); do  # a job outlives the daemons that started it
    [ -n "$(squeue --noheader 2> /dev/null)" ] || break
    sleep 0.5
  done
  for file in slurmd.pid slurmctld.pid munge/pid; do
    [ -s "$folder/$file" ] && kill "$(cat "$folder/$file")" 2> /dev/null || true
  done
}

case "${1:-}" in
  install) install ;;
  up | down) folder=$(realpath -m "${2:?name a folder}") && "$1" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
