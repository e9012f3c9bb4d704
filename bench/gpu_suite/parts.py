"""The parts of the suite: one line for each command and its settings.

In commands and settings {python}, {nvcc}, {arch}, {cuda}, {programs}, {bin} (of the build), {work} (a folder of the
part's own) and {run} (of one process's own) are filled in.
"""

import dataclasses

from modes import Mode


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    what: str
    command: tuple
    build: tuple = ()        # commands that make the program, on the machine that runs it
    settings: dict = dataclasses.field(default_factory=dict)  # environment of all its runs
    steps: int = 20          # in a block, that is between two changes of mode
    warm_up: int = 5
    packages: tuple = ()     # Python packages whose versions belong to the result
    whole: bool = False      # runs to its end on its own: makes no steps on command (digits)
    simulated: tuple = ()    # the command on the simulated driver; none: the part needs a GPU
    start_limit: float = 30  # seconds until it must be ready for its first step
    bundle: bool = False     # a step is saved, and run without the program (bundle.py), instead of the modes
    graph_life: bool = False  # programs that make and destroy CUDA graphs, recorded in many processes (graph_life.py)
    disorder: bool = False   # the programs of the integration tests that break their steps (disorder.py)
    ways: tuple = ()         # compared instead of the modes (ways.py); the first is the program alone


TORCH = ("torch", "torchvision", "triton")
# cuBLAS is deterministic only with a separate workspace. Compilers keep their output within the run's folder, so that every
# run compiles, and none reuses another's.
PYTHON_SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0", "TRITON_CACHE_DIR": "{run}/triton",
                   "TORCHINDUCTOR_CACHE_DIR": "{run}/inductor", "TORCHINDUCTOR_COMPILE_THREADS": "4",
                   "CUPY_CACHE_DIR": "{run}/cupy", "HF_HUB_OFFLINE": "1",
                   "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                   "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"}


def python_part(name, what, program, *arguments, settings=None, **rest):
    # The first import of a framework after the machine's start reads gigabytes.
    return Part(name, what, ("{python}", "{programs}/" + program, *arguments), settings={**PYTHON_SETTINGS, **(settings or {})},
                start_limit=120, **rest)


def ways_part(name, what, eager, graph, more=(), **rest):
    """A program alone, replayed, and as a CUDA graph by hand: the words of `graph` with the graph's shape for SHAPE."""
    def by_hand(shape):
        return tuple(word.replace("SHAPE", shape) for word in graph)
    ways = (Mode("eager", "the program alone, without the shim"),
            Mode("line", "its step as a CUDA graph by hand, in a line", command=by_hand("line")),
            Mode("branches", "the same with the step's branches concurrent", command=by_hand("branches")),
            # Without tuning: this comparison is what NIMBLE_TUNE would do.
            Mode("nimble", "the program, replayed", "replay", {
                "NIMBLE_SCHEDULE": "{work}/schedule.json", "NIMBLE_STATS": "{run}/counters.json", "NIMBLE_TUNE": "off"}),
            Mode("auto", "the program: recorded, analyzed and replayed in one process", "auto", {
                "NIMBLE_STATS": "{run}/counters.json", "NIMBLE_TUNE": "off"}), *more)
    return Part(name, what, eager, ways=ways, simulated=eager, **rest)


def runtime_part(kind):
    build = ("{nvcc}", "-std=c++17", "-O2", "-arch={arch}", "-cudart", kind, "-Xlinker", "-rpath,{cuda}/lib64",
             "{programs}/runtime_api.cu", "-o", "{work}/runtime_api")
    return Part(f"cudart_{kind}", f"CUDA C++, {kind} runtime: copies, sets, events, pools, cooperative, clusters, a graph",
                ("{work}/runtime_api",), build=(build,), steps=100)


DIGITS = ("train", "--epochs", "{epochs}", "--seed", "1", "--save", "{run}/weights", "--stats", "{run}/stats.json")
PARTS = [
    Part("digits", "examples/digits: trains a small CNN through the driver API",
         ("{bin}/digits", "train", "--epochs", "4", "--seed", "1", "--save", "{run}/weights", "--stats", "{run}/stats.json"),
         whole=True,
         simulated=("{bin}/digits", "train", "--epochs", "1", "--steps", "20", "--seed", "1", "--save", "{run}/weights",
                    "--stats", "{run}/stats.json")),
    Part("digits_bundle", "a saved training step of examples/digits, in its own order and under every policy",
         ("{bin}/digits", *DIGITS), whole=True, bundle=True,
         simulated=("{bin}/digits", "train", "--epochs", "1", "--steps", "12", "--seed", "1", "--save", "{run}/weights",
                    "--stats", "{run}/stats.json")),
    ways_part("digits_ways", "examples/digits alone, replayed, and as a CUDA graph by hand", ("{bin}/digits", *DIGITS),
              ("{bin}/digits_graph", "SHAPE", *DIGITS), whole=True,
              more=(Mode("region", "its step as a region of the C API", "regions",
                         {"NIMBLE_STATS": "{run}/counters.json"}, ("{bin}/digits_region", *DIGITS)),)),
    ways_part("inception_ways", "driver API inference, batch 1, eight blocks of four branches, in the same ways",
              ("{bin}/inception", "eager"), ("{bin}/inception", "SHAPE"), steps=50, warm_up=20),
    Part("disorder", "programs that break their steps, with and without replay", (), disorder=True, simulated=("kinds",)),
    Part("graph_life", "programs that make, launch, change and destroy CUDA graphs, in default recording, many processes of each", (),
         graph_life=True, settings=PYTHON_SETTINGS, start_limit=240),
    Part("driver_api", "C++ on the driver API: two streams, events, pools, a graph", ("{work}/driver_api",),
         build=(("{nvcc}", "-std=c++17", "-O2", "{programs}/driver_api.cpp", "-lcuda", "-o", "{work}/driver_api"),
                ("{nvcc}", "-std=c++17", "-O2", "-arch={arch}", "-fatbin", "-I{root}", "{programs}/driver_api.cu", "-o",
                 "{work}/driver_api.fatbin")),
         steps=100, simulated=("{bin}/driver_api",)),
    runtime_part("static"),
    runtime_part("shared"),
    Part("constants", "CUDA C++: a constant variable, written twice in each step and read by kernels", ("{work}/constant_variables",),
         build=(("{nvcc}", "-std=c++17", "-O2", "-arch={arch}", "{programs}/constant_variables.cu", "-o",
                 "{work}/constant_variables"),), steps=100),
    python_part("torch_cublas", "torch: matrix products", "torch_libraries.py", "cublas", steps=50, packages=TORCH),
    python_part("torch_cufft", "torch: Fourier transforms", "torch_libraries.py", "cufft", steps=50, packages=TORCH),
    python_part("torch_cudnn", "torch: convolutions", "torch_libraries.py", "cudnn", steps=50, packages=TORCH),
    python_part("resnet50", "torch eager inference, batch 1", "torch_inference.py", "resnet50", packages=TORCH),
    python_part("inception_v3", "torch eager inference, batch 1", "torch_inference.py", "inception_v3", packages=TORCH),
    python_part("resnet50_async", "the same as resnet50, with an allocation for each tensor", "torch_inference.py", "resnet50",
                settings={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
                          "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, packages=TORCH),
    python_part("train_sgd", "torch training step with dropout, SGD", "torch_train.py", "sgd", packages=TORCH),
    python_part("train_adam", "torch training step with dropout, Adam", "torch_train.py", "adam", packages=TORCH),
    python_part("torch_graphs", "torch under CUDA graphs: resnet50 replayed", "torch_graphs.py", packages=TORCH),
    python_part("triton", "kernels written in Triton", "triton_kernels.py", steps=50, packages=TORCH),
    python_part("jax", "JAX: jitted matrix product, gradient step", "jax_steps.py", steps=50, packages=("jax", "jaxlib")),
    python_part("cupy", "CuPy: elementwise, reduction, matrix product, RawKernel", "cupy_steps.py", steps=50,
                packages=("cupy-cuda13x",)),
    python_part("compile", "torch.compile, default mode", "torch_compiled.py", "default", packages=TORCH),
    python_part("compile_graphs", "torch.compile, mode reduce-overhead (CUDA graphs)", "torch_compiled.py", "reduce-overhead",
                packages=TORCH),
]
