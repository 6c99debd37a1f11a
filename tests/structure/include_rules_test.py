"""Tests of include_rules.py: each rule finds its breach in a small tree, and what is allowed is left alone."""

import pathlib
import tempfile
import unittest

import include_rules


class IncludeRules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / "host" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def assert_fine(self, name, text):
        self.write(name, text)
        self.assertEqual(include_rules.breaches(self.root), [])

    def assert_breach(self, name, text, line, words):
        self.write(name, text)
        found = include_rules.breaches(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"host/{name}:{line}: "), found[0])
        self.assertIn(words, found[0])

    def test_a_lower_room_and_the_own_room_are_fine(self):
        text = '#include "fsdp/root.h"\n#include "comm/transport.h"\n#include "base/error.h"\n'
        self.assert_fine("fsdp/root.cpp", text)

    def test_a_higher_room_is_a_breach(self):
        text = '#include "base/log.h"\n\n#include "config/config.h"\n'
        self.assert_breach("base/log.cpp", text, 3, "base includes config/config.h")

    def test_a_room_of_the_same_level_is_a_breach(self):
        self.assert_breach("grad/norm.cpp", '#include "optim/adamw.h"\n', 1, "grad includes optim/adamw.h")

    def test_angle_brackets_do_not_hide_a_higher_room(self):
        self.assert_breach("comm/group.cpp", "#include <train/trainer.h>\n", 1, "comm includes train/trainer.h")

    def test_spaces_and_a_continued_line_do_not_hide_a_breach(self):
        self.assert_breach("comm/group.cpp", '  # \\\n  include   "cli/main.h"\n', 1, "comm includes cli/main.h")

    def test_report_may_include_only_the_events_of_train(self):
        self.assert_fine("report/metrics.cpp", '#include "train/events.h"\n')
        self.assert_breach("report/metrics.cpp", '#include "train/trainer.h"\n', 1, "only: train/events.h")

    def test_what_is_reserved_for_one_room_is_a_breach_elsewhere(self):
        reserved = {
            "boost/dll/shared_library.hpp": "plugin",
            "boost/dll.hpp": "plugin",
            "mantissa/precision.h": "plugin",
            "toml++/toml.h": "config",
            "torch/csrc/distributed/c10d/Store.hpp": "comm",
            "gloo/rendezvous/store.h": "comm",
            "nccl.h": "comm",
            "CLI/CLI.hpp": "cli",
            "spdlog/spdlog.h": "base",
            "fmt/core.h": "base",
        }
        for header, room in reserved.items():
            with self.subTest(header):
                self.assert_fine(f"{room}/file.cpp", f"#include <{header}>\n")
                self.assert_breach("train/loop.cpp", f"#include <{header}>\n", 1, f"is for: {room}")
                self.assert_fine("train/loop.cpp", "")

    def test_torch_is_for_its_rooms_only(self):
        self.assert_fine("optim/adamw.cpp", "#include <ATen/core/Tensor.h>\n#include <c10/util/intrusive_ptr.h>\n")
        self.assert_breach("config/load.cpp", "#include <ATen/core/Tensor.h>\n", 1, "LibTorch is for:")

    def test_the_whole_of_torch_is_for_no_room(self):
        self.assert_breach("model/gpt.cpp", "#include <torch/torch.h>\n", 1, "tests only")

    def test_a_public_header_is_a_part_of_the_room_that_implements_it(self):
        self.assert_fine("model/gpt.h", "#include <mantissa/unit.h>\n")
        self.assert_fine("fsdp/root.h", '#include "mantissa/unit.h"\n')
        self.assert_breach("data/text.cpp", "#include <mantissa/unit.h>\n", 1, "data includes mantissa/unit.h")

    def test_a_public_header_keeps_the_rules_of_its_room(self):
        self.assert_fine("include/mantissa/unit.h", "#include <ATen/core/Tensor.h>\n")
        self.assert_breach("include/mantissa/unit.h", '#include "train/loop.h"\n', 1, "fsdp includes train/loop.h")

    def test_an_unknown_public_header_is_a_breach(self):
        self.assert_breach("model/gpt.h", "#include <mantissa/other.h>\n", 1, "mantissa/other.h is no public header")

    def test_an_own_header_is_named_from_host(self):
        self.write("comm/transport.h", "")
        self.assert_breach("comm/transport.cpp", '#include "transport.h"\n', 1, "no such file in host/")

    def test_a_folder_that_is_no_room_is_a_breach(self):
        self.assert_breach("helpers/strings.h", "", 1, "in no room")

    def test_a_computed_include_is_a_breach(self):
        self.assert_breach("comm/group.cpp", "#include HEADER\n", 1, "write the file's name")

    def test_comments_and_strings_are_no_includes(self):
        self.assert_fine(
            "base/log.cpp",
            '// #include "cli/main.h"\n'
            '/*\n#include "cli/main.h"\n*/\n'
            'const char* program = R"(\n#include "cli/main.h"\n)";\n'
            "const char quote = '\"';\n"
            'const char* line = "\\"\\n#include";\n'
            "#if __has_include(<toml++/toml.h>)\n#endif\n",
        )

    def test_a_breach_behind_a_digit_separator_is_found(self):
        text = "int n = 10'000;\n#include <CLI/CLI.hpp>\nint m = 1'0;\n"
        self.assert_breach("base/log.cpp", text, 2, "CLI11 is for: cli")

    def test_the_checkout_itself_with_a_planted_breach_fails(self):
        source = pathlib.Path(__file__).resolve().parents[2] / "host" / "base" / "error.cpp"
        text = '#include "cli/main.h"\n' + source.read_text()
        self.assert_breach("base/error.cpp", text, 1, "base includes cli/main.h")


if __name__ == "__main__":
    unittest.main()
