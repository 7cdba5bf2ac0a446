# SPDX-License-Identifier: Apache-2.0
"""Tests of the computations of bench/compare and bench/sawtooth."""
import importlib.machinery
import importlib.util
import pathlib
import unittest
import xml.etree.ElementTree as xml

from comparison import results, svg, table
from comparison.cases import CASES, Case, Role, runs
from comparison.ideal import Alone, Bus, excluding, exchanged_bytes, handoff_seconds
from comparison.tenants import entries, evictions

BUS = Bus(inwards=50.0, outwards=40.0, both=80.0)


def alone(*phases):
    return Alone(tuple(phases))


class Ideal(unittest.TestCase):
    def test_phases_on_the_gpu_exclude_each_other_and_those_on_the_cpu_overlap(self):
        big_90, big_50 = alone(("gpu", 9), ("cpu", 1)), alone(("gpu", 5), ("cpu", 5))
        self.assertEqual(excluding([big_90, big_90], 0), 19)  # 0.95 of the 20 s of both programs in sequence
        self.assertEqual(excluding([big_50, big_50], 0), 15)
        self.assertEqual(excluding([big_50, big_50], 0.5), 15.5)

    def test_the_order_of_the_phases(self):
        self.assertEqual(excluding([alone(("cpu", 5), ("gpu", 5)), alone(("cpu", 5), ("gpu", 5))], 0), 15)
        self.assertEqual(excluding([alone(("cpu", 5), ("gpu", 5)), alone(("gpu", 5), ("cpu", 5))], 0), 10)

    def test_one_that_is_long_alone_is_as_long_beside_another(self):
        pausing = alone(("gpu", 1), ("cpu", 20), ("gpu", 1))
        self.assertEqual(excluding([pausing, alone(("gpu", 5))], 0.1), 22)

    def test_sets_that_fit_take_what_plain_cuda_takes_for_them(self):
        self.assertEqual(excluding([alone(("gpu", 5))] * 4, 0, packing=0.9), 18)

    def test_heads_and_tails_of_a_tenant_that_never_uses_the_gpu(self):
        self.assertEqual(alone(("cpu", 3)).head, 3)
        self.assertEqual(alone(("cpu", 3)).gpu, 0)

    def test_bytes_that_must_come_in(self):
        self.assertEqual(exchanged_bytes(95, 95, 2, 100), 90)  # 5 of each program's 95 bytes stay on the GPU
        self.assertEqual(exchanged_bytes(60, 60, 3, 100), 40)  # the other two programs have the rest of the GPU, 40
        self.assertEqual(exchanged_bytes(25, 90, 2, 100), 15)
        self.assertEqual(exchanged_bytes(5, 90, 2, 100), 0)

    def test_copies_each_way_at_once(self):
        self.assertEqual(handoff_seconds(100, 100, BUS), 2.5)
        self.assertEqual(handoff_seconds(0, 100, BUS), 2)  # a copy in one direction alone has its own speed
        self.assertEqual(handoff_seconds(100, 0, BUS), 2.5)


class Cases(unittest.TestCase):
    def test_which_fit(self):
        fits = {case.name for case in CASES if case.fits}
        self.assertEqual(fits, {"small_90", "small_50", "fits_2", "fits_3", "fits_4", "fits_8"})

    def test_how_many_fit_together(self):
        at_once = {case.name: case.at_once for case in CASES}
        self.assertEqual([at_once[name] for name in ("twice_2", "twice_3", "twice_4", "twice_8", "fits_3", "interactive")],
                         [1, 1, 2, 4, 3, 1])

    def test_each_role_is_measured_alone_before_all_else(self):
        for case in CASES:
            names = [run.name for run in runs(case, ["30s"])]
            self.assertEqual(len(names), len(set(names)))
            self.assertEqual(names[:len(case.roles)], [f"alone: {role.kind}" for role in case.roles])
            self.assertEqual("sharedgpu, Quantum=30s" in names, case.name in ("big_90", "big_50"))


class Entries(unittest.TestCase):
    LOG = """\
2026-01-01T00:00:00.000 sharedgpud: info: serving /tmp/socket
2026-01-01T00:00:01.000 sharedgpud: debug: run 1, pid 11: came
2026-01-01T00:00:01.000 sharedgpud: debug: run 1: lease on GPU-a
2026-01-01T00:00:01.100 sharedgpud: debug: run 2, pid 22: came
2026-01-01T00:00:01.100 sharedgpud: debug: run 2: lease on GPU-a
2026-01-01T00:00:02.000 sharedgpud: debug: run 2: released GPU-a
2026-01-01T00:00:03.000 sharedgpud: debug: run 1: released GPU-a
2026-01-01T00:00:03.250 sharedgpud: debug: run 2: lease on GPU-a
2026-01-01T00:00:04.000 sharedgpud: debug: run 2: released GPU-a
2026-01-01T00:00:04.100 sharedgpud: debug: run 2: lease on GPU-a
2026-01-01T00:00:05.000 sharedgpud: debug: run 2, pid 22: gone
2026-01-01T00:00:05.000 sharedgpud: debug: run 2: released GPU-a
2026-01-01T00:00:05.500 sharedgpud: debug: run 1: lease on GPU-a
"""

    def test_only_leases_that_followed_another_tenants(self):
        found = entries(self.LOG)
        self.assertEqual([pid for pid, _ in found], [22, 11])
        self.assertAlmostEqual(found[0][1], 0.25)
        self.assertAlmostEqual(found[1][1], 0.5)


class Evictions(unittest.TestCase):
    def test_what_a_tenant_tells(self):
        told = ("sharedgpu: debug: evicted in 12.5 ms, in MiB: 3 copied, 16384 unchanged, 5 uniform\n"
                "sharedgpu: debug: another line\n")
        self.assertEqual(evictions(told), [{"seconds": 0.0125, "copied": 3, "unchanged": 16384, "uniform": 5}])


def program(begin, end, size, phases, cells=(), result="same"):
    return {"begin": begin, "end": end, "bytes": size, "result": result, "pid": 1, "cells": list(cells), "evictions": [],
            "phases": [{"where": where, "steps": 1, "seconds": seconds} for where, seconds in phases]}


class Results(unittest.TestCase):
    BIG = Case("big", "mixes", (Role("mix", 0.95, copies=2, gpu=0.5),))

    def measured(self):
        solo = program(0, 10, 95, [("gpu", 5), ("cpu", 5)])
        return {"alone: mix": {"programs": [solo], "entries": []},
                "sharedgpu": {"programs": [program(0, 15.5, 95, []), program(1, 16.5, 95, [])],
                              "entries": [{"tenant": 1, "seconds": 2.0}, {"tenant": 0, "seconds": 3.0}]},
                "managed": {"error": "exit status 2"}}

    def test_rows_of_tenants_that_exclude_each_other(self):
        alone_one, serial, shared = results.rows(self.BIG, self.measured(), 100, BUS)
        self.assertEqual((alone_one.name, alone_one.seconds, alone_one.ideal), ("alone: mix", 10, None))
        self.assertEqual((serial.name, serial.seconds, serial.ideal), ("serial", 20, None))
        self.assertEqual((shared.name, shared.seconds, shared.serial, shared.handoffs), ("sharedgpu", 16.5, 20, 2))
        self.assertEqual(shared.handoff_seconds, 2.5)
        self.assertAlmostEqual(shared.ideal, 15 + 2 * 180 / 80)

    def test_where_all_fits_plain_cuda_together_is_the_ideal(self):
        case = Case("small", "mixes", (Role("mix", 0.45, copies=2),))
        measured = self.measured() | {"plain CUDA together": {"programs": [program(0, 14, 45, [])] * 2, "entries": []}}
        ideals = {row.name: row.ideal for row in results.rows(case, measured, 100, BUS)}
        self.assertEqual(ideals, {"alone: mix": None, "serial": None, "sharedgpu": 14, "plain CUDA together": 14})

    def test_no_rows_without_the_run_alone(self):
        measured = self.measured()
        measured["alone: mix"] = {"error": "exit status 1"}
        self.assertEqual(results.rows(self.BIG, measured, 100, BUS), [])

    def test_what_does_not_change_is_not_copied_out(self):
        case = Case("inference", "unlike", (Role("mix", 0.9), Role("inference", 0.6, unchanged=True)))
        self.assertEqual(results.copies(case, [90, 60], [0], 100, BUS), 1)  # 50 in, nothing out
        self.assertEqual(results.copies(case, [90, 60], [1], 100, BUS), 1.25)  # 50 in and 50 out

    def test_waits_count_while_the_other_works(self):
        case = Case("interactive", "unlike", (Role("hog", 0.9), Role("interactive", 0.25)))
        cells = [{"launch": float(at), "start": at + wait, "end": at + 1.0}
                 for at, wait in ((1, 0.25), (2, 0.5), (9, 0.125))]
        run = {"programs": [program(0, 5, 90, []), program(0, 10, 25, [], cells)], "entries": []}
        (wait,) = results.waits(case, {"sharedgpu": run}, 100, BUS)
        self.assertEqual((wait.cells, wait.median, wait.p95, wait.restore), (2, 0.375, 0.5, 15 / 50))

    def test_a_result_that_is_not_that_of_the_run_alone(self):
        run = next(run for run in runs(self.BIG, []) if run.name == "sharedgpu")
        right, other = program(0, 1, 95, []), program(0, 1, 95, [], result="other")
        self.assertEqual(results.wrong(self.BIG, run, self.measured(), {"programs": [right, right]}), "")
        self.assertEqual(results.wrong(self.BIG, run, self.measured(), {"programs": [right, other]}),
                         "the mix of pid 1 has the result other; alone, it has same")

    def test_turns_of_unlike_tenants(self):
        case = Case("inference", "unlike", (Role("mix", 0.9), Role("inference", 0.6, unchanged=True)))
        first = {"seconds": 0.5, "copied": 9, "unchanged": 0, "uniform": 0}
        second = {"seconds": 0.25, "copied": 0, "unchanged": 9, "uniform": 0}
        reader = program(0, 1, 60, []) | {"evictions": [first, second]}
        run = {"programs": [program(0, 1, 90, []), reader], "entries": [{"tenant": 1, "seconds": 2.0}]}
        found = results.turns(case, {"alone: mix": {"programs": [program(0, 1, 90, [])], "entries": []}, "sharedgpu": run})
        self.assertEqual([(t.kind, t.handoffs, t.later) for t in found], [("mix", [], []), ("inference", [2.0], [second])])
        self.assertEqual(table.turns(found)[-1],
                         "| inference | sharedgpu | inference | 1 | 2.000 | 1 | 0.250 | 0 | 9 | 0 |")

    def test_percentiles(self):
        self.assertEqual(results.percentile(range(1, 101), 0.95), 95)
        self.assertEqual(results.percentile([3, 1, 2], 0.95), 3)
        self.assertEqual(results.percentile([7], 0.95), 7)

    def test_the_documents(self):
        rows = results.rows(self.BIG, self.measured(), 100, BUS)
        machine = {"gpu": "A GPU", "total_bytes": 2**34, "bus": {"in": 50e9, "out": 40e9, "both": 80e9}}
        settings = {"limit": 2**30, "program": "torch", "seconds": 40.0}
        text = table.document(machine, settings, rows, [], [], ["big, managed: exit status 2"])
        self.assertIn("| big | sharedgpu | 16.50 s | 0.825 | 2 | 2.500 | 19.50 | 0.846 |", text)
        self.assertIn("- big, managed: exit status 2", text)
        root = xml.fromstring(svg.chart("a < b & c", rows))
        words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        for word in ("a < b & c", "big", "serial", "sharedgpu", "16.50 s", "0.846"):
            self.assertIn(word, words)


class Sawtooth(unittest.TestCase):
    def load(self):
        path = pathlib.Path(__file__).parents[3] / "bench/sawtooth"
        loader = importlib.machinery.SourceFileLoader("sawtooth", str(path))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sawtooth", loader))
        loader.exec_module(module)
        return module

    def test_what_came_of_the_deadlines_after_the_warm_up(self):
        sawtooth = self.load()
        paced = [{"time_s": at, "met": 10 + 30 * at, "missed": 2 + at // 2, "response_s": 0.004, "part": 1, "lease_s": 0}
                 for at in range(5)]
        other = [row | {"lease_s": 7 + row["time_s"] / 4, "part": 0.5 / (1 + row["time_s"])} for row in paced]
        self.assertEqual(sawtooth.counts(paced, other), (120, 2, 0.25))
        self.assertEqual(sawtooth.misses(paced), [2, 4])
        root = xml.fromstring(sawtooth.picture(paced, other, ["a < b"], 3))
        namespace = "{http://www.w3.org/2000/svg}"
        self.assertEqual([len(each.get("points").split()) for each in root.iter(namespace + "polyline")], [4, 4])
        self.assertEqual(sum(each.get("stroke") == "#c02020" for each in root.iter(namespace + "line")), 1)
        self.assertIn("a < b", [each.text for each in root.iter(namespace + "text")])


if __name__ == "__main__":
    unittest.main()
