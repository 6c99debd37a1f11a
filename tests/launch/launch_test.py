"""Starts four ranks in every way that there is:  launch_test.py BUILD_DIR [Launch.test_NAME]

Losses and norms must have the same bits whoever starts the ranks, as long as their order is the same. Hosts are network
namespaces, which need root. Needs nothing but Python's standard library; torchrun is taken from LIBTORCH_PYTHON of the
build. Exit code 77: skipped, and the reason is printed.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
import ctest_main  # noqa: E402
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build/release").resolve()
PROGRAM = str(BUILD / "bin/mantissa")
LIMIT_S = 100  # of one command
STEPS = 5

# What may tell a process that it is a rank.
STARTERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_", "OMPI_", "TORCHELASTIC_",
            "GLOO_SOCKET_IFNAME", "MANTISSA_PLUGIN_PATH")

CONFIG = f"""
[run]
name = "t"
steps = {STEPS}
[model]
kind = "gpt"
layers = 2
width = 32
heads = 2
context = 16
[data]
path = "text.txt"
[train]
batch = 6
eval_every = 0
[precision]
plugin = "fsdp_norm"
[clip]
max_norm = 0.5
[distributed]
timeout_s = 20
[log]
every = 1
"""


def clean_environment(**variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(STARTERS)}
    return kept | {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"} | variables


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def libtorch_python():
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^LIBTORCH_PYTHON:\w+=(.+)$", cache, re.MULTILINE)
    return found[1] if found else None


class Hosts:
    """Two network namespaces with a cable between them: hosts 10.77.0.1 and 10.77.0.2."""

    def __init__(self):
        self.names = [f"mantissa-{os.getpid()}-{i}" for i in (1, 2)]
        cables = [f"mts{os.getpid() % 100000}{end}" for end in "ab"]
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
            for i, (name, cable) in enumerate(zip(self.names, cables)):
                self.ip("link", "set", cable, "netns", name)
                self.ip("-n", name, "link", "set", cable, "name", "cable0")
                self.ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", "cable0")
                self.ip("-n", name, "link", "set", "cable0", "up")
                self.ip("-n", name, "link", "set", "lo", "up")
                subprocess.run(self.on(i, "true"), check=True, capture_output=True, timeout=20)
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)

    def on(self, host, *command):
        return ["ip", "netns", "exec", self.names[host], *command]

    def name(self, name, addresses):
        """Makes `name` stand for one address on each host."""
        for host, address in zip(self.names, addresses):
            folder = pathlib.Path("/etc/netns") / host
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n", encoding="utf-8")

    def close(self):
        for name in self.names:
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False, timeout=20)


class Launch(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="mantissa-launch-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.started = []
        self.addCleanup(self.end_all)
        lines = [f"In the beginning was line {n * n % 97}.\n" for n in range(300)]
        (self.folder / "text.txt").write_text("".join(lines), encoding="utf-8")
        (self.folder / "run.toml").write_text(CONFIG, encoding="utf-8")

    def end_all(self):
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()

    # --- processes ---

    def start(self, command, **variables):
        process = subprocess.Popen(command, cwd=self.folder, env=clean_environment(**variables), text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        self.started.append(process)
        return process

    def finish(self, process):
        """(exit code, stderr)"""
        try:
            _, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.fail(f"hung: {process.args}\n{process.communicate()}")
        return process.returncode, errors

    def run_to_end(self, command, **variables):
        code, errors = self.finish(self.start(command, **variables))
        self.assertEqual(code, 0, errors)

    def start_ranks(self, variables_of, count=4, command=None):
        return [self.start(command or [PROGRAM, "train", "run.toml"], **variables_of(rank)) for rank in range(count)]

    def finish_well(self, ranks):
        for rank, (code, errors) in enumerate([self.finish(process) for process in ranks]):
            self.assertEqual(code, 0, f"rank {rank}: {errors}")

    # --- what they came to ---

    def numbers(self):
        """Loss and norms of each step, as they were written: equal text is equal bits."""
        (folder,) = self.folder.glob("runs/t/*")
        rows = [json.loads(row, parse_float=str) for row in (folder / "metrics.jsonl").read_text().splitlines()]
        shutil.rmtree(self.folder / "runs")
        self.assertEqual(len(rows), STEPS)
        return [(row["step"], row["loss"], row["grad_norm"], row["grad_norm_clipped"]) for row in rows]

    def by_own_launcher(self):
        self.run_to_end([PROGRAM, "train", "run.toml", "--ranks", "4"])
        return self.numbers()

    def by_hand(self, **extra):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()} | extra
        return lambda rank: {"RANK": str(rank), "WORLD_SIZE": "4"} | place

    # --- ways to start ---

    def test_OwnLauncherAndByHand_SameBits(self):
        expected = self.by_own_launcher()
        self.assertNotEqual(expected[0][1], expected[-1][1], "nothing was learnt: the comparison shows nothing")
        self.finish_well(self.start_ranks(self.by_hand()))
        self.assertEqual(self.numbers(), expected)

    def test_Torchrun_SameBits(self):
        python = libtorch_python()
        if not python or subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True,
                                        check=False, timeout=LIMIT_S).returncode != 0:
            self.skipTest("torchrun is not there: LIBTORCH_PYTHON has no torch")
        self.run_to_end([python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "4", "--master-port",
                         free_port(), PROGRAM, "train", "run.toml"])
        self.assertEqual(self.numbers(), self.by_own_launcher())

    def test_Mpirun_SameBits(self):
        if not shutil.which("mpirun"):
            self.skipTest("mpirun is not installed (Debian's openmpi-bin)")
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.run_to_end(["mpirun", "-n", "4", "--oversubscribe", "-x", "MASTER_ADDR=127.0.0.1", "-x",
                         f"MASTER_PORT={free_port()}", PROGRAM, "train", "run.toml"], **root)
        self.assertEqual(self.numbers(), self.by_own_launcher())

    def test_Srun_WithItsVariables_SameBits(self):
        port = free_port()
        self.finish_well(self.start_ranks(lambda rank: {
            "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}))
        self.assertEqual(self.numbers(), self.by_own_launcher())

    # --- two hosts ---

    def hosts(self):
        if not shutil.which("ip"):
            self.skipTest("ip is not installed (Debian's iproute2)")
        try:
            hosts = Hosts()
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or str(error).encode()
            self.skipTest(f"network namespaces are not allowed here: {reason.decode().strip()}")
        self.addCleanup(hosts.close)
        return hosts

    def start_on_hosts(self, hosts, more=(), **extra):
        variables = self.by_hand(**({"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"} | extra))
        return [self.start(hosts.on(rank // 2, PROGRAM, "train", "run.toml", *more), **variables(rank))
                for rank in range(4)]

    def test_TwoHostsOfTwoRanks_SameBits(self):
        hosts = self.hosts()
        self.finish_well(self.start_on_hosts(hosts))
        chosen = self.numbers()
        self.finish_well(self.start_on_hosts(hosts, GLOO_SOCKET_IFNAME="cable0"))
        self.assertEqual(self.numbers(), chosen)
        self.assertEqual(chosen, self.by_own_launcher())

    def test_HostNameThatIsLoopbackOnItsOwnHost_LeadsTheOthersThere(self):
        hosts = self.hosts()
        hosts.name("nodea", ["127.0.1.1", "10.77.0.1"])  # as Debian's installer does on nodea itself
        self.finish_well(self.start_on_hosts(hosts, MASTER_ADDR="nodea"))
        self.assertEqual(self.numbers(), self.by_own_launcher())

    def test_KilledRankOnTheOtherHost_EndsAll(self):
        hosts = self.hosts()
        ranks = self.start_on_hosts(hosts, more=("--set", "run.steps=1000000", "--set", "distributed.timeout_s=15"))
        self.wait_for_steps()
        os.killpg(ranks[3].pid, signal.SIGKILL)
        for rank in range(3):
            code, errors = self.finish(ranks[rank])
            self.assertEqual(code, 1, errors)
            self.assertRegex(errors.splitlines()[-1], r"mantissa: error: .*rank 3 gave no sign of life", f"rank {rank}")

    def wait_for_steps(self):
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if any(file.stat().st_size > 0 for file in self.folder.glob("runs/t/*/metrics.jsonl")):
                return
            time.sleep(0.05)
        self.fail("no step was made")

    # --- what can be wrong ---

    def expect_problem(self, process, wanted_code, pattern):
        code, errors = self.finish(process)
        lines = errors.splitlines()
        self.assertEqual(len(lines), 1, errors)
        self.assertRegex(lines[0], "^mantissa: error: " + pattern)
        self.assertEqual(code, wanted_code, errors)

    def test_WrongEnvironments_AreToldInOneLine(self):
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen(50)  # and never answers
            port = str(taken.getsockname()[1])
            cases = [
                ("no name", {"RANK": "0", "MASTER_ADDR": "no-such-host.invalid"}, 2,
                 r"MASTER_ADDR = no-such-host\.invalid has no address \(.+\); need a name or an address of the machine"),
                ("port taken", {"RANK": "0", "MASTER_PORT": port}, 1,
                 f"rank 0 cannot listen on port {port}: another program of this machine uses it; choose another"),
                ("no store", {"RANK": "1", "MASTER_PORT": port}, 1,
                 rf"rank 1 of 2 (got no answer|did not reach rank 0) at 127\.0\.0\.1:{port} within 2 s"),
                ("nobody", {"RANK": "1"}, 1,
                 r"rank 1 of 2 did not reach rank 0 at 127\.0\.0\.1:\d+ within 2 s; start rank 0 there, and check "),
                ("rank too large", {"RANK": "2"}, 2, r'environment variable RANK is "2", need a whole number from 0 to 1'),
                ("no partner", {"WORLD_SIZE": "", "RANK": "1"}, 2, "environment variable WORLD_SIZE is not set, but "),
                ("no place", {"MASTER_ADDR": "", "RANK": "1"}, 2, "environment variable MASTER_ADDR is not set, but "),
                ("not ours", {"RANK": "0", "MASTER_ADDR": "192.0.2.1"}, 1,
                 r"(rank 0 listens on port \d+, but does not reach itself at 192\.0\.2\.1|no way leads)"),
            ]
            for name, variables, code, pattern in cases:
                with self.subTest(name):
                    given = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()} | variables
                    process = self.start([PROGRAM, "train", "run.toml", "--set", "distributed.timeout_s=2"], **given)
                    self.expect_problem(process, code, pattern)
        for variable, partner in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
            process = self.start([PROGRAM, "train", "run.toml", "--ranks", "2"], **{variable: "0", partner: "2"})
            self.expect_problem(process, 2, f"--ranks was given, but {variable} is set too")

    def test_WrongInterface_NamesThoseThatThereAre(self):
        ranks = self.start_ranks(self.by_hand(GLOO_SOCKET_IFNAME="eth77"))
        for process in ranks:
            code, errors = self.finish(process)
            self.assertEqual(code, 2, errors)
            self.assertRegex(errors, r'GLOO_SOCKET_IFNAME names the network interface "eth77".*; there are: .*\blo\b')

    def test_MissingRank_IsNamedAtTheLimit(self):
        ranks = self.start_ranks(self.by_hand(), count=3,
                                 command=[PROGRAM, "train", "run.toml", "--set", "distributed.timeout_s=4"])
        for process in ranks:
            self.expect_problem(process, 1, r"3 of 4 ranks came within 4 s; rank 3 did not: start what is missing, or "
                                            r"correct WORLD_SIZE")

    # A rank that comes when rank 0 has gone already finds nobody; the others hear what is wrong.
    def expect_told(self, ranks, pattern):
        told = 0
        for process in ranks:
            code, errors = self.finish(process)
            self.assertEqual(len(errors.splitlines()), 1, errors)
            if re.search(pattern, errors):
                told += 1
                self.assertEqual(code, 2, errors)
            else:
                self.assertRegex(errors, "rank . of . (did not reach|lost) rank 0")
        self.assertGreaterEqual(told, 2)

    def short(self):
        return [PROGRAM, "train", "run.toml", "--set", "distributed.timeout_s=5"]

    def test_RankTwice_IsToldAtOnce(self):
        variables = self.by_hand()
        ranks = self.start_ranks(lambda rank: variables([0, 1, 1][rank]), count=3, command=self.short())
        self.expect_told(ranks, "two processes were started as rank 1; RANK must be given once each, from 0 to 3")

    def test_OtherWorldSize_IsToldAtOnce(self):
        variables = self.by_hand()
        ranks = self.start_ranks(lambda rank: variables(rank) | ({"WORLD_SIZE": "5"} if rank == 2 else {}), count=3,
                                 command=self.short())
        self.expect_told(ranks, r"rank \d was started as one of \d ranks, another as one of \d; WORLD_SIZE must be the "
                                "same on all")


if __name__ == "__main__":
    ctest_main.main()
