"""What random kernels do that only newer architectures can: asynchronous copies, matrices in shared memory (sm_80),
barriers there, bulk copies, tensor maps, the shared memory of other blocks (sm_90), products of matrices there
(sm_90a, which is level 91), and work that other blocks hand out (sm_100)."""

PREFACE_80 = r"""
__device__ __forceinline__ unsigned in_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(in_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy16(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(in_shared(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copied() { asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ int matrix(const void* p) {
  int x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(in_shared(p)) : "memory");
  return x;
}
__device__ __forceinline__ int matrix_turned(const void* p) {
  int x, y;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(in_shared(p)) : "memory");
  return x ^ y;
}
__device__ __forceinline__ int4 matrices(const void* p) {
  int4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(in_shared(p)) : "memory");
  return v;
}
// The first two words of a row are in two neighbours' registers.
__device__ __forceinline__ int* pointer_of_matrix(int word) {
  const unsigned low = __shfl_sync(~0u, word, 0), high = __shfl_sync(~0u, word, 1);
  return (int*)((unsigned long long)high << 32 | low);
}
"""

PREFACE_90 = r"""
struct alignas(64) Map { char bytes[128]; };
__device__ __forceinline__ void put_matrix(void* p, int x) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(in_shared(p)), "r"(x) : "memory");
}
__device__ __forceinline__ void put_matrices(void* p, int4 v) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(in_shared(p)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void put_matrices_turned(void* p, int x, int y) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(in_shared(p)), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ unsigned in_block(const void* p, int block) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(in_shared(p)), "r"(block));
  return there;
}
__device__ __forceinline__ void send(void* p, int x, const void* bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
               ::"r"(in_block(p, 0)), "r"(x), "r"(in_block(bar, 0)) : "memory");
}
__device__ __forceinline__ void send_pointer(void* p, const void* x, const void* bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
               ::"r"(in_block(p, 0)), "l"(x), "r"(in_block(bar, 0)) : "memory");
}
__device__ __forceinline__ void send_add(void* p, int x, const void* bar) {
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
               ::"r"(in_block(p, 0)), "r"(x), "r"(in_block(bar, 0)) : "memory");
}
__device__ __forceinline__ int in_other(const void* p) {
  int x;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(in_block(p, 0)) : "memory");
  return x;
}
__device__ __forceinline__ void make_barrier(unsigned long long* bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(in_shared(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ unsigned long long arrive(unsigned long long* bar, int bytes) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;" : "=l"(state) : "r"(in_shared(bar)), "r"(bytes) : "memory");
  return state;
}
__device__ __forceinline__ void wait(unsigned long long* bar, int phase) {
  asm volatile("{\n.reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN;\n}"
               ::"r"(in_shared(bar)), "r"(phase & 1) : "memory");
}
__device__ __forceinline__ void bulk_in(void* to, const void* from, int bytes, unsigned long long* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(in_shared(to)), "l"(from), "r"(bytes), "r"(in_shared(bar)) : "memory");
}
__device__ __forceinline__ void bulk_out(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"
               ::"l"(to), "r"(in_shared(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_add(void* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;\ncp.async.bulk.commit_group;"
               ::"l"(to), "r"(in_shared(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void map_in(void* to, const Map* map, int x, int y, unsigned long long* bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(in_shared(to)), "l"(map), "r"(x), "r"(y), "r"(in_shared(bar)) : "memory");
}
__device__ __forceinline__ void map_out(const Map* map, const void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(map), "r"(x), "r"(y), "r"(in_shared(from)) : "memory");
}
__device__ __forceinline__ void map_add(const Map* map, const void* from, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(map), "r"(x), "r"(y), "r"(in_shared(from)) : "memory");
}
"""


PREFACE_90A = r"""
__device__ __forceinline__ unsigned long long matrix_at(const void* p) {
  return (unsigned long long)((in_shared(p) & 0x3ffff) >> 4) | 1ull << 16 | 8ull << 32;
}
__device__ __forceinline__ float product(const void* a, const void* b, bool adds) {
  float x = 1, y = 2, z = 3, w = 4;
  asm volatile("wgmma.fence.sync.aligned;\n{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}\n"
               "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
               : "+f"(x), "+f"(y), "+f"(z), "+f"(w) : "l"(matrix_at(a)), "l"(matrix_at(b)), "r"((int)adds) : "memory");
  return x + y * z + w;
}
"""

PREFACE_100 = r"""
__device__ __forceinline__ void ask_for_work(int4* answer, unsigned long long* bar) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
               ::"r"(in_shared(answer)), "r"(in_shared(bar)) : "memory");
}
__device__ __forceinline__ int next_block(const int4* answer) {
  int x;
  asm volatile("{\n.reg .b128 r;\n.reg .pred p;\nld.shared.b128 r, [%1];\nmov.u32 %0, 0;\n"
               "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;\n"
               "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r;\n}"
               : "=r"(x) : "r"(in_shared(answer)) : "memory");
  return x;
}
"""


def preface(level):
    text = (PREFACE_80 if level >= 80 else "") + (PREFACE_90 if level >= 90 else "")
    return text + (PREFACE_90A if level == 91 else PREFACE_100 if level >= 100 else "")


def declare(kernel):
    """Shared memory that these statements use: 64 numbers or pointers, and a barrier."""
    kernel.say("__shared__ alignas(128) int tile[256];")
    kernel.say("tile[threadIdx.x & 255] = threadIdx.x;")
    if kernel.level >= 90:
        kernel.say("__shared__ alignas(8) unsigned long long bar;")
        kernel.say("if (threadIdx.x == 0) make_barrier(&bar, 1);")
    kernel.say("__syncthreads();")


def statement(kernel):
    new, say, number = kernel.new, kernel.say, kernel.number
    name = new("m")
    if kernel.level == 91 and kernel.chance(20):
        say(f"int {name} = (int)product(&tile[{number(1)} & 31], &tile[64], {kernel.condition(1)}) & 63;")
        kernel.ints.append(name)
        return
    if kernel.level >= 100 and kernel.chance(15):
        say("if (threadIdx.x == 0) ask_for_work((int4*)tile + 3, &bar);")
        say(f"wait(&bar, {number(1)});")
        say(f"int {name} = next_block((int4*)tile + 3);")
        kernel.ints.append(name)
        return
    if kernel.chance(8):
        # Shared memory, or that of a pointer.
        where = f"({kernel.condition(1)} ? &tile[{number(1)} & 255] : {kernel.pointer()} + {kernel.rng.randint(0, 9)})"
        say(f"int* {name} = {where};")
        say(f"*{name} = {number()};" if kernel.chance(50) else f"tile[3] = *{name};")
        return
    kind = kernel.rng.randrange(7 if kernel.level < 90 else 18 if kernel.maps else 15)
    if kind == 0:
        say(f"copy4(&tile[threadIdx.x & 255], &({kernel.pointer()})[{kernel.index()}]);")
        say("copied();")
    elif kind == 1:
        say(f"copy16(&tile[threadIdx.x * 4 & 255], &({kernel.pointer()})[{kernel.index()}], {number(1)} & 16);")
        say("copied();")
        say("__syncthreads();")
    elif kind == 2:
        say(f"int {name} = matrix(&tile[threadIdx.x * 4 & 31]) & 255;")
        kernel.ints.append(name)
    elif kind == 3:
        say(f"int4 {name} = matrices(&tile[threadIdx.x * 4 & 127]);")
        kernel.ints += [f"({name}.x & 63)", f"({name}.w & 63)"]
    elif kind == 4:
        say(f"int {name} = matrix_turned(&tile[threadIdx.x * 4 & 127]) & 63;")
        kernel.ints.append(name)
    elif kind in (5, 6) and kernel.shared_pointers and kernel.depth == 0:
        array = kernel.rng.choice(kernel.shared_pointers)
        say(f"int* {name} = pointer_of_matrix(matrix(&{array}[threadIdx.x * 2 & 31]));")
        if kernel.chance(70):
            say(f"if ({number()} > 3) {name} = {kernel.pointer()};")
        say(f"{name}[{kernel.index()}] = {number(1)};")
        kernel.pointers.append(name)
    elif kind <= 6:
        say(f"({kernel.pointer()})[{kernel.index()}] = tile[{number(1)} & 255];")
    elif kind == 7:
        say(f"put_matrix(&tile[threadIdx.x * 4 & 127], {number()});")
    elif kind == 8:
        say(f"put_matrices(&tile[threadIdx.x * 4 & 127], make_int4({number(1)}, {number(1)}, 1, 2));")
        say(f"put_matrices_turned(&tile[threadIdx.x * 4 & 127], {number(1)}, {number(1)});")
    elif kind == 9:
        say("if (threadIdx.x == 0) {")
        say("  arrive(&bar, 64);")
        say(f"  bulk_in(tile, &({kernel.pointer()})[{kernel.index()}], ({number(1)} & 3) * 16 + 16, &bar);")
        say("}")
        say(f"wait(&bar, {number(1)});")
    elif kind == 10:
        say(f"if (threadIdx.x == 0) bulk_out(&({kernel.pointer()})[{kernel.index()}], tile, ({number(1)} & 3) * 16 + 16);")
    elif kind == 11:
        say(f"if (threadIdx.x == 0) bulk_add(&({kernel.pointer()})[{kernel.index()}], tile, 32);")
    elif kind == 12:
        say(f"int {name} = (int)(arrive(&bar, {number(1)} & 255) & 63);")
        kernel.ints.append(name)
    elif kind in (12, 13) and kernel.shared_pointers:
        array = kernel.rng.choice(kernel.shared_pointers)
        say(f"send_pointer(&{array}[{number(1)} & 31], {kernel.pointer()}, &bar);")
        say(f"{array}[{number(1)} & 31][{kernel.index(1)}] = {number(1)};")
    elif kind == 13:
        say(f"send(&tile[{number(1)} & 255], {number()}, &bar);")
        say(f"send_add(&tile[{number(1)} & 255], {number()}, &bar);")
    elif kind == 14:
        say(f"int {name} = in_other(&tile[{number(1)} & 255]) & 63;")
        kernel.ints.append(name)
    else:
        chosen = kernel.rng.choice(kernel.maps)
        if kernel.chance(20):
            chosen = f"{kernel.condition(1)} ? &{chosen} : &{kernel.rng.choice(kernel.maps)}"
        else:
            chosen = f"&{chosen}"
        if kind == 15:
            say(f"if (threadIdx.x == 0) map_in(tile, {chosen}, {number(1)}, {number(1)}, &bar);")
            say(f"wait(&bar, {number(1)});")
        else:
            say(f"if (threadIdx.x == 0) map_{'out' if kind == 16 else 'add'}({chosen}, tile, {number(1)}, {number(1)});")
