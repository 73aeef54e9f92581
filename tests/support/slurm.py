"""A SLURM cluster of one node for the tests: on loopback, with its own configuration in a temporary folder, as root."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
PATHS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={control}
SlurmdPort={daemon}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
JobRequeue=0
KillWait=20
MaxArraySize=3
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_min_interval=0,bf_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Return why no cluster can be started here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATHS) is None]
    if absent:
        return f"SLURM is not installed: {', '.join(absent)} (Debian: slurm-wlm, munge)"
    return None if os.geteuid() == 0 else "SLURM is started as root"


class Cluster:
    """The daemons of a cluster. `environment` has the variable that leads SLURM's programs to it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orthobench-slurm-"))
        self.folder.chmod(0o755)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        host = socket.gethostname().partition(".")[0]
        control, daemon = _free_ports()
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        text = CONFIGURATION.format(host=host, folder=self.folder, control=control, daemon=daemon)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        parts = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid"}
        parts |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        self.daemons: list[subprocess.Popen[bytes]] = []
        self._start("munged", "--foreground", "--force", *(f"--{k}={self.folder / v}" for k, v in parts.items()))
        self._wait(lambda: (self.folder / "munge.socket").exists())
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        self._wait(lambda: self.call("sinfo", "--noheader", "--format=%t").strip() == "idle")

    def call(self, *command: str) -> str:
        """Return the output of one of SLURM's programs, or its errors."""
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | self.environment, timeout=30, check=False
        )
        return done.stdout if done.returncode == 0 else done.stderr

    def remove(self) -> None:
        """Cancel all jobs, stop the daemons and remove their folder."""
        self.call("scancel", "--user=root")
        with contextlib.suppress(TimeoutError):
            self._wait(lambda: not self.call("squeue", "--noheader").strip())
        for process in reversed(self.daemons):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, program: str, *arguments: str) -> None:
        path = shutil.which(program, path=PATHS)
        assert path is not None
        with (self.folder / f"{program}.out").open("wb") as log:
            self.daemons.append(
                subprocess.Popen(
                    [path, *arguments],
                    env=os.environ | self.environment | {"PATH": PATHS},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _wait(self, condition) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.daemons):
                logs = [path.read_text(errors="replace")[-600:] for path in self.folder.glob("*.log")]
                raise TimeoutError("SLURM did not start: " + "\n".join(logs))
            time.sleep(0.1)


def _free_ports() -> list[int]:
    with socket.socket() as first, socket.socket() as second:
        for free in (first, second):
            free.bind(("127.0.0.1", 0))
        return [first.getsockname()[1], second.getsockname()[1]]
