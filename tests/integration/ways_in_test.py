"""Every way into the driver: the trace holds exactly the calls that the program made, and the program notices nothing."""

import collections
import json
import os
import re
import struct
import subprocess
import sys
import unittest

import harness
from harness import ProgramTest

# What programs/workload.h does, under the names of the legacy default stream.
WORK = {"cuMemAlloc_v2": 2, "cuMemsetD32_v2": 2, "cuLaunchKernel": 20, "cuMemcpyDtoH_v2": 1}
WORK_PER_THREAD = {"cuMemAlloc_v2": 2, "cuMemsetD32_v2_ptds": 2, "cuLaunchKernel_ptsz": 20, "cuMemcpyDtoH_v2_ptds": 1}


def library(name):
    return os.path.join(os.path.dirname(harness.BUILD.library), name)


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], text=True, capture_output=True, check=True).stdout


class WaysInTest(ProgramTest):
    def seen(self):
        """The calls of the trace, in the order of their seq."""
        events = self.read_json("trace.json")
        calls = [e["args"] for e in events if e["ph"] == "X" and e["pid"] == 1]
        return [call["call"] for call in sorted(calls, key=lambda call: call["seq"])]

    def three_ways(self, args, stderr="", plain=None, **settings):
        """Runs a program without the shim, in off mode and in record mode: its output must be the same, and the driver
        must get the same calls. Returns the output. Settings are for all three,
        those of `plain` for the first alone."""
        runs = {}
        for name in ("trace.json", "report.json"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        for mode in (None, "off", "record"):
            done = self.run_program(args, mode=mode, NIMBLE_TRACE=self.path("trace.json"),
                                    SIMCUDA_REPORT=self.path("report.json"), **settings,
                                    **(plain if plain and mode is None else {}))
            report = self.read_json("report.json") if os.path.exists(self.path("report.json")) else None
            runs[mode] = done.stdout, self.work_of(report)
            reserves = os.path.exists(self.path("trace.json")) and not harness.BUILD.preload_first
            self.assertEqual(report["calls"].get("cuMemAddressReserve", 0) if report else 0, 2 if reserves else 0)
            self.assertRegex(done.stderr, f"^({stderr})?$" if mode == "record" else "^$")
            self.assertEqual(runs[mode], runs[None], mode)
            if mode != "record":
                self.assertFalse(os.path.exists(self.path("trace.json")))
        return runs[None][0]

    @staticmethod
    def work_of(report):
        """How often the driver was called, without what the shim asks it for itself, addresses among that."""
        calls = report["calls"] if report else {}
        return {name: count for name, count in calls.items() if re.match("cu(Launch|Mem(?!Address))", name)}

    def check(self, args, expected=None, **settings):
        output = self.three_ways(args, **settings)
        self.assertEqual(collections.Counter(self.seen()), collections.Counter(expected or WORK))
        return output


class Programs(WaysInTest):
    def test_linked(self):
        self.check(["ways_in", "linked"])

    def test_dlsym(self):
        for way in ("dlsym", "dlsym_default", "dlsym_program", "dlsym_next", "default_library"):
            with self.subTest(way):
                self.check(["ways_in", way])

    def test_proc_address(self):
        self.check(["ways_in", "proc_address"])

    def test_proc_address_v2_with_per_thread_streams(self):
        self.check(["ways_in", "proc_address_v2"], WORK_PER_THREAD)

    def test_lookups_find_what_they_find_without_the_shim(self):
        output = self.three_ways(["ways_in", "facts"])
        # The test would show nothing if nothing were found, or everything.
        for line in (
            "dlsym of an entry point: found, no error",
            "dlsym of one that is not there: not found, error",
            "next from the first library: found, no error",
            "next from the last library: not found, error",
            "by default from the last library: found, no error",
            "dlvsym of libc: found, no error",
            "dlvsym of libc, no such version: not found, error",
            "next from the first library: last",
            "next from the program: first",
        ):
            self.assertIn(line + "\n", output)

    def test_proc_address_in_every_way_that_it_can_be_asked(self):
        names = self.path("names")
        plain = self.run_program(["proc_address", names])
        recorded = self.run_program(["proc_address"], mode="record", NIMBLE_TRACE=self.path("trace.json"))
        self.assertEqual(plain.stdout, recorded.stdout)
        with open(names, encoding="utf-8") as file:
            expected = file.read().split()
        self.assertEqual(len(expected), 8 * 3 * 8 * 4)
        self.assertEqual({name for name in expected if name.startswith("cuLaunch")}, {"cuLaunchKernel", "cuLaunchKernel_ptsz"})
        start = ["cuMemAlloc_v2"] * 2 + ["cuMemsetD32_v2"] * 2
        self.assertEqual(self.seen(), start + expected)

    def other_driver(self, change):
        """The search path to a copy of the driver, whose bytes change(image, sections) has changed. `sections` is where
        each section of the file begins."""
        driver = os.path.join(harness.BUILD.simcuda, "libcuda.so.1")
        with open(driver, "rb") as file:
            image = bytearray(file.read())
        listing = readelf("-S", driver)
        change(image, {name: int(begin, 16) for name, begin in re.findall(r"\] (\.\S+) +\w+ +\w+ (\w+)", listing)})
        os.mkdir(self.path("driver"))
        with open(os.path.join(self.path("driver"), "libcuda.so.1"), "wb") as file:
            file.write(image)
        return f"{self.path('driver')}:{os.path.dirname(harness.BUILD.library)}"

    def test_a_driver_that_lacks_entry_points(self):
        def change(image, sections):  # the names are gone from its symbol table
            for name in (b"cuGetProcAddress_v2", b"cuLaunchKernelEx_ptsz", b"cuMemBatchDecompressAsync"):
                at = image.index(b"\0" + name + b"\0", sections[".dynstr"])
                image[at + len(name)] = ord("#")

        output = self.check(["mini_runtime", "legacy"], LD_LIBRARY_PATH=self.other_driver(change))
        self.assertIn("fallback: ", output)

    def test_dlvsym(self):
        def change(image, sections):  # its symbols have a version, which dlvsym can ask for
            driver = os.path.join(harness.BUILD.simcuda, "libcuda.so.1")
            version = int(re.search(r"Name: GLIBC_2\.2\.5 .*Version: (\d+)", readelf("-V", driver))[1])
            symbols = re.findall(r"^ *(\d+): .* (cu[A-Z]\w*)$", readelf("--dyn-syms", driver), re.MULTILINE)
            self.assertGreater(len(symbols), 400)
            for index, _ in symbols:
                struct.pack_into("<H", image, sections[".gnu.version"] + 2 * int(index), version)

        path = self.other_driver(change)
        self.check(["ways_in", "dlvsym"], LD_LIBRARY_PATH=path)
        self.assertIn("dlvsym of an entry point: found, no error\n", self.three_ways(["ways_in", "facts"], LD_LIBRARY_PATH=path))


class Runtime(WaysInTest):
    """As the CUDA runtime finds the driver."""

    def test_both_tables(self):
        output = self.check(["mini_runtime", "legacy"])
        variants = int(re.search(r"cuGetProcAddress: \d+ functions, (\d+)", output)[1])
        self.assertGreater(variants, 60)

    def test_both_tables_per_thread(self):
        self.check(["mini_runtime", "per_thread"], WORK_PER_THREAD)

    def test_fallback_where_the_symbol_is_missing(self):
        self.assertIn("fallback: ", self.check(["mini_runtime", "legacy", "cuGetProcAddress_v9"]))

    def test_fallback_where_the_probe_says_stub(self):
        for table, expected in (("legacy", WORK), ("per_thread", WORK_PER_THREAD)):
            with self.subTest(table):
                output = self.check(["mini_runtime", table], expected, SIMCUDA_INJECT="cuGetProcAddress_v2:1:34")
                self.assertIn("fallback: ", output)


class Plugins(WaysInTest):
    """Programs without the driver, which load libraries with it."""

    def test_local(self):
        for way in ("linked", "default"):
            with self.subTest(way):
                output = self.check(["plugin_host", library("libways_plugin.so"), "local", way])
                self.assertIn("before, cuLaunchKernel: by default 0, error 1, in the program 0\n", output)
                self.assertIn("after, cuLaunchKernel: by default 0, error 1, in the program 0\n", output)
                self.assertIn("the library finds it: 1\n", output)

    def test_global(self):
        output = self.check(["plugin_host", library("libways_plugin.so"), "global", "linked"])
        self.assertIn("after, cuLaunchKernel: by default 1, error 0, in the program 1\n", output)

    def test_a_library_whose_stubs_load_the_driver(self):
        for how in ("local", "global"):
            for way in ("linked", "default"):
                with self.subTest(f"{how}, {way}"):
                        self.check(["plugin_host", library("libways_stubs.so"), how, way])

    def test_no_driver_at_all(self):
        # Its stubs are never called: lookups find nothing that would not be there without the shim.
        output = self.three_ways(["plugin_host", library("libways_stubs.so"), "global", "none"],
                                 LD_LIBRARY_PATH=os.path.dirname(harness.BUILD.library))
        self.assertIn("before, cuLaunchKernel: by default 0, error 1, in the program 0\n", output)
        self.assertFalse(os.path.exists(self.path("trace.json")))

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "sanitizers refuse RTLD_DEEPBIND")
    def test_deepbind(self):
        for way in ("linked", "default"):
            with self.subTest(way):
                self.check(["plugin_host", library("libways_plugin.so"), "deepbind", way],
                           stderr="nimble: warning: .*libways_plugin.so was opened with RTLD_DEEPBIND.*\n")

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "a second namespace would get a second sanitizer")
    def test_a_library_in_a_namespace_of_its_own_is_left_alone(self):
        # It has a copy of the driver that no preloaded library reaches.
        output = self.three_ways(["plugin_host", library("libways_plugin.so"), "namespace", "linked"])
        self.assertRegex(output, r"\n\d+\n$")
        self.assertFalse(os.path.exists(self.path("trace.json")))
        output = self.three_ways(["plugin_host", library("libways_plugin.so"), "namespace", "look"],
                                 stderr="nimble: warning: a second copy of the driver is in use, from .*libcuda.so.1: .*\n")
        self.assertIn("by the library's handle: 1\n", output)


class Python(WaysInTest):
    SCRIPT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def check(result):
    assert result == 0, result
check(cuda.cuInit(0))
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuModuleLoad(ctypes.byref(module), {image!r}))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"_Z6updateILi1EEvPjPKji"))
state, change, count = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int(64)
for pointer, value in ((state, 1), (change, 2)):
    check(getattr(cuda, "cuMemAlloc_v2")(ctypes.byref(pointer), ctypes.c_size_t(256)))
    check(getattr(cuda, "cuMemsetD32_v2")(pointer, value, ctypes.c_size_t(64)))
arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in (state, change, count)))
for _ in range(20):
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, arguments, None))
result = (ctypes.c_uint * 64)()
check(cuda.cuMemcpyDtoH_v2(result, state, ctypes.c_size_t(256)))
print(sum(result) & 0xffffffff)
"""

    def test_ctypes(self):
        script = self.SCRIPT.format(image=os.path.join(harness.BUILD.bin, "programs.simcuda").encode())
        same = self.run_program(["ways_in", "linked"]).stdout
        # The interpreter is built without sanitizers, the driver perhaps with them: then their runtime comes first.
        settings = {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0", "TSAN_OPTIONS": "report_bugs=0"}
        output = self.check([sys.executable, "-c", script], plain={"LD_PRELOAD": harness.BUILD.preload_first}, **settings)
        self.assertEqual(output, same)


class Interposers(WaysInTest):
    """Another preloaded library that wraps launches, before ours and after it: both see every one."""

    def check(self, name, way):
        other = library(name)
        plain = self.preloaded([other], way)
        self.assertRegex(plain, r"^\d+\ninterposer: 20 launches\n$")
        ours = harness.BUILD.library
        for order in ([other, ours], [ours, other]):
            for mode in ("off", "record"):
                with self.subTest(f"{way}, {mode}, {[os.path.basename(path) for path in order]}"):
                    self.assertEqual(self.preloaded(order, way, mode), plain)
                    if mode == "record":
                        self.assertEqual(collections.Counter(self.seen()), collections.Counter(WORK))
                        os.remove(self.path("trace.json"))

    def preloaded(self, libraries, way, mode="off"):
        preload = ":".join(filter(None, [harness.BUILD.preload_first, *libraries]))
        args = ["mini_runtime", "legacy"] if way == "runtime" else ["ways_in", way]
        done = self.run_program(args, mode=mode, LD_PRELOAD=preload, NIMBLE_TRACE=self.path("trace.json"),
                                ASAN_OPTIONS="verify_asan_link_order=0")
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_one_that_exports_the_entry_point(self):
        self.check("liblaunch_interposer.so", "linked")
        self.check("liblaunch_interposer.so", "dlsym_default")

    def test_one_that_hooks_dlsym(self):
        for way in ("linked", "dlsym", "dlsym_default"):
            self.check("libdlsym_interposer.so", way)


class Library(ProgramTest):
    """The file itself: what it shows to a process, and what it asks of it."""

    def test_exports(self):
        listing = subprocess.run(["nm", "-D", "--defined-only", harness.BUILD.library], text=True, capture_output=True, check=True)
        names = {line.split()[-1] for line in listing.stdout.splitlines()}
        self.assertEqual(names, self.intercepted() | {"dlsym", "dlvsym", "dlopen", "_exit", "_Exit"} | self.c_api()
                         | {"cublasLtMatmul", "cublasSetWorkspace_v2"}
                         | {"cuptiActivityRegisterCallbacks", "cuptiSubscribe", "cuptiSubscribe_v2"}
                         | {"setrlimit", "setrlimit64", "prlimit", "prlimit64"})

    def intercepted(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include", "nimble", "internal")
        with open(os.path.join(folder, "driver_calls.def"), encoding="utf-8") as file:
            text = file.read()
        names = set()
        for kind, name in re.findall(r"^NIMBLE_(CALL|PTSZ|PTDS)\((\w+),", text, re.MULTILINE):
            names |= {name} if kind == "CALL" else {name, f"{name}_{kind.lower()}"}
        self.assertGreater(len(names), 200)
        return names

    def c_api(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include", "nimble", "nimble.h")
        with open(path, encoding="utf-8") as file:
            names = set(re.findall(r"^NIMBLE_FUNCTION\((nimble_\w+),", file.read(), re.MULTILINE))
        self.assertGreater(len(names), 4)
        return names

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "sanitizers need what they need")
    def test_takes_next_to_nothing_of_each_threads_stack(self):
        """Thread-local variables lie there: those of a library that is preloaded in every thread, whatever the mode."""
        size = re.search(r"^ *TLS +\S+ \S+ \S+ \S+ (\w+)", readelf("-l", harness.BUILD.library), re.MULTILINE)
        self.assertLess(int(size[1], 16), 1024)

    @unittest.skipIf(os.environ.get("NIMBLE_TEST_PRELOAD"), "sanitizers need what they need")
    def test_needs_no_new_glibc_and_no_other_libraries(self):
        needs = readelf("-dV", harness.BUILD.library)
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([\d.]+)", needs)}
        self.assertGreater(len(versions), 3)
        self.assertLessEqual(max(versions), (2, 28))
        self.assertEqual(set(re.findall(r"NEEDED.*\[(.*)\]", needs)),
                         {"libpthread.so.0", "libdl.so.2", "libc.so.6", "ld-linux-x86-64.so.2"})


if __name__ == "__main__":
    harness.main()
