"""Tests of `./dev bench`: its arithmetic, and whole comparisons of stand-ins. Needs Python's standard library only."""

import itertools
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import results
import tables

HERE = pathlib.Path(__file__).resolve().parent


def run_of(step_ms, losses=None):
    return {"steps": [{"loss": loss, "ms": {"step": ms, "forward": ms / 4, "backward": ms / 2}}
                      for ms, loss in zip(step_ms, losses or [1.0] * len(step_ms))]}


class Statistics(unittest.TestCase):
    def test_MedianMs_WithSlowFirstSteps_LeavesThemOut(self):
        self.assertEqual(results.median_ms(run_of([900, 800, 10, 30, 20]), "step", 2), 20)
        self.assertEqual(results.median_ms(run_of([900, 800, 10, 30, 20]), "after_backward", 2), 5)
        self.assertIsNone(results.median_ms(run_of([1, 2]), "comm", 0))

    def test_PairedRatios_OnAMachineSlowInOneRound_StayTheSame(self):
        rounds = [{"runs": {"ours": run_of([ours]), "peer": run_of([peer])}}
                  for ours, peer in ((100, 150), (1000, 1500), (100, 160))]
        self.assertEqual(results.paired_ratios(rounds, "peer", "ours", "step", 0), [1.5, 1.5, 1.6])

    def test_OrderOf_OverTwoLaps_GivesEverySideEveryPlaceTwice(self):
        sides = ("a", "b", "c", "d")
        orders = [results.order_of(index, sides) for index in range(8)]
        for side, place in itertools.product(sides, range(4)):
            self.assertEqual([order[place] for order in orders].count(side), 2)
        followed = {(x, y) for order in orders for x, y in zip(order, order[1:])}
        self.assertIn(("a", "b"), followed)
        self.assertIn(("b", "a"), followed)

    def test_CheckLosses_WithinTheTolerance_TellsTheLargestDifference(self):
        ours, near = run_of([1, 1], [2.0, 3.0]), run_of([1, 1], [2.0, 3.0 * (1 + 9e-6)])
        self.assertAlmostEqual(results.check_losses({"ours": ours, "peer": near}, "here"), 9e-6, delta=1e-10)

    def test_CheckLosses_AboveTheToleranceAtOneStep_NamesItAndBothLosses(self):
        ours, far = run_of([1, 1], [2.0, 3.0]), run_of([1, 1], [2.0, 3.0 * (1 + 1.1e-5)])
        with self.assertRaisesRegex(results.LossesDiffer, r"here, step 1: the loss of ours is 3\.0, .*peer is 3\.00003"):
            results.check_losses({"ours": ours, "peer": far}, "here")

    def test_CheckLosses_OfASideInBfloat16_AllowTwoPercent(self):
        ours = run_of([1, 1], [2.0, 3.0])
        near, far = run_of([1, 1], [2.0, 3.05]), run_of([1, 1], [2.0, 3.07])
        self.assertEqual(results.check_losses({"ours": ours, "ours_bf16": near}, "here"), 0)
        with self.assertRaisesRegex(results.LossesDiffer, "need at most 0.02"):
            results.check_losses({"ours": ours, "ours_bf16": far}, "here")

    def test_CheckLosses_NotFiniteOrOfAnotherLength_Refuse(self):
        for other in (run_of([1], [math.nan]), run_of([1], ["nan"]), run_of([1, 1])):
            with self.assertRaises(results.LossesDiffer):
                results.check_losses({"ours": run_of([1]), "peer": other}, "here")


class Docs(unittest.TestCase):
    def test_IntoDocs_BetweenMarkers_ReplacesOnlyWhatIsThere(self):
        text = f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n"
        self.assertEqual(tables.into_docs(text, "new\n"), f"before\n{tables.BEGIN}\nnew\n{tables.END}\nafter\n")

    def test_IntoDocs_WithoutMarkers_Refuses(self):
        with self.assertRaises(ValueError):
            tables.into_docs("no markers", "new")

    def test_PerformancePage_OfTheCheckout_HasTheMarkers(self):
        tables.into_docs((HERE.parents[1] / "docs/performance.md").read_text(encoding="utf-8"), "")


class Comparison(unittest.TestCase):
    """bench.py as it is, with stand-ins for the program, the peer and the Python packages."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        program = self.folder / "build/bin/mantissa"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -B '{HERE / 'stand_in.py'}' \"$@\"\n")
        program.chmod(0o755)
        (self.folder / "text").write_text("text")
        for package in ("torch", "numpy", "safetensors"):
            (self.folder / "packages" / package).mkdir(parents=True)
            (self.folder / "packages" / package / "__init__.py").touch()

    def start(self, *arguments, fault="", packages="packages"):
        # -S: no packages but the stand-ins.
        command = [sys.executable, "-S", "-B", str(HERE / "bench.py"), "--out", str(self.folder / "out"), "--build",
                   str(self.folder / "build"), "--data", str(self.folder / "text"), "--peer",
                   str(HERE / "stand_in.py"), "--rounds", "2", "--steps", "3", "--warmup", "1", "--setting", "gpt", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.folder / packages), "STAND_IN_FAULT": fault,
                       "STAND_IN_PIDS": str(self.folder / "pids")}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def expect_nothing_kept(self):
        out = self.folder / "out"
        self.assertEqual(list(out.iterdir()) if out.exists() else [], [])

    def test_SidesThatAgree_GiveTablesAndJson(self):
        code, out, err = self.finish(self.start())
        self.assertEqual(code, 0, err)
        (file,) = (self.folder / "out").iterdir()
        result = json.loads(file.read_text())
        self.assertEqual([len(setting["rounds"]) for setting in result["settings"]], [2])
        fsdp2 = result["settings"][0]["summary"]["pairs"][0]
        self.assertEqual(fsdp2["step"], {"median": 1.5, "min": 1.5, "max": 1.5})
        self.assertIn("1.50 (1.50 to 1.50)", out)
        self.assertGreater(result["settings"][0]["summary"]["sides"]["fsdp2"]["pss_mb"], 1)
        again = self.finish(self.start("--from", str(file)))
        self.assertEqual(again[:2], (0, out))

    def test_LossesThatDiffer_EndWithOneAndKeepNothing(self):
        for side, name in (("ddp", "ddp"), ("mantissa", "fsdp2")):
            with self.subTest(side=side):
                code, out, err = self.finish(self.start(fault=f"{side}:loss"))
                self.assertEqual((code, out), (1, ""), err)
                self.assertRegex(err.splitlines()[-1], f"error: GPT 3.3 M, 16 rows, step 2: the loss of .* {name} is ")
                self.expect_nothing_kept()

    def test_ASideThatFails_IsNamedWithItsLastWords(self):
        code, _, err = self.finish(self.start(fault="fsdp2:fail"))
        self.assertEqual(code, 1)
        self.assertEqual(err.splitlines()[-1], "bench: error: FSDP2 (GPT 3.3 M, 16 rows, 2 ranks) ended with exit code 1: "
                                               "the stand-in was told to fail")
        self.expect_nothing_kept()

    def test_ASideThatHangs_IsEndedAtTheLimit(self):
        code, _, err = self.finish(self.start("--limit-s", "5", fault="mantissa:hang"))
        self.assertEqual(code, 1)
        self.assertIn("was not done after 5 s", err.splitlines()[-1])
        self.expect_nothing_kept()

    def hung_pids(self, count):
        file, until = self.folder / "pids", time.monotonic() + 120
        while time.monotonic() < until:
            pids = [int(line) for line in file.read_text().split()] if file.exists() else []
            if len(pids) == count:
                return pids
            time.sleep(0.01)
        self.fail("the stand-ins did not start")

    def test_Interrupted_EndsAllProcessesAndKeepsNothing(self):
        for stop in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(stop=stop):
                (self.folder / "pids").unlink(missing_ok=True)
                process = self.start(fault="ddp:hang")
                pids = self.hung_pids(2)
                process.send_signal(stop)
                code, out, err = self.finish(process)
                self.assertEqual((code, out), (130, ""), err)
                self.assertEqual(err.splitlines()[-1], "bench: stopped; nothing was kept")
                for pid in pids:
                    with self.assertRaises(ProcessLookupError):
                        os.kill(pid, 0)
                self.expect_nothing_kept()

    def test_WithoutTorch_SaysSoAtOnce(self):
        code, _, err = self.finish(self.start(packages="nothing"))
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^bench: error: .* has no Python package torch, .*\n$")

    def test_OptionsThatDoNotGoTogether_AreRefused(self):
        for arguments, what in ((("--warmup", "3"), "--warmup is 3"), (("--ranks", "17"), "--ranks is 17")):
            code, _, err = self.finish(self.start(*arguments))
            self.assertEqual(code, 2)
            self.assertIn(what, err)


if __name__ == "__main__":
    unittest.main()
