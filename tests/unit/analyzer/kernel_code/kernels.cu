// Kernels whose accesses are known: for the analysis of their PTX, and as a simulated image, in which each access is
// seen. The pointers that a kernel's name does not explain are named after what is done with them.
#include "tests/simcuda/image/kernel.h"

__device__ inline int thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

extern "C" __global__ void scale(float* w, const float* r, float factor, int count) {
  const int i = thread();
  if (i < count) w[i] = r[i] * factor;
}
NIMBLE_KERNEL(scale)

// `unused` is passed and compared with null, and never followed.
extern "C" __global__ void with_unused(float* w, const float* r, const float* unused, int count) {
  const int i = thread();
  if (i < count) w[i] = unused ? r[i] : 0.0f;
}
NIMBLE_KERNEL(with_unused)

// A pointer that is both: only when this is seen through is `rw` in no one's way.
extern "C" __global__ void accumulate(float* rw, const float* r, int count) {
  const int i = thread();
  if (i < count) rw[i] += r[i];
}
NIMBLE_KERNEL(accumulate)

// A structure by value whose pointers stand between other things.
struct Layer {
  int batch;
  const float* r;
  short width, height;
  float* w;
  float* rw;
  float scale;
};

extern "C" __global__ void struct_by_value(int before, Layer layer) {
  const int i = thread();
  if (i >= layer.batch) return;
  layer.w[i] = layer.r[i] * layer.scale + static_cast<float>(layer.width * before);
  layer.rw[i] += 1.0f;
}
NIMBLE_KERNEL(struct_by_value)

// As cuBLAS has it: a factor lies in memory, or beside where its address would be.
struct Factors {
  const float* alpha;
  const float* beta;
  float* out;
  const float* bias;
  unsigned mode;
  short kind;
  bool biased;
  unsigned char unused;
  int count;
  float value;
};

extern "C" __global__ void behind_flags(Factors f) {
  const int i = thread();
  if (i >= f.count) return;
  const float alpha = f.mode == 1 ? *f.alpha : f.value;
  float sum = alpha + f.out[i];
  if (f.kind != 7) sum += f.beta[i];
  if (f.biased) sum += f.bias[i];
  f.out[i] = sum;
}
NIMBLE_KERNEL(behind_flags)

// As PyTorch passes them: the first is the output.
template <int N>
struct Pointers {
  char* data[N];
};

extern "C" __global__ void array_of_pointers(Pointers<3> p, int count) {
  const int i = thread();
  if (i >= count) return;
  float* out = reinterpret_cast<float*>(p.data[0]);
  out[i] = reinterpret_cast<const float*>(p.data[1])[i] + reinterpret_cast<const float*>(p.data[2])[i];
}
NIMBLE_KERNEL(array_of_pointers)

// Chosen at run time: all of them may be written.
extern "C" __global__ void indexed_array_of_pointers(Pointers<4> p, const float* r, int which, int count) {
  const int i = thread();
  if (i < count) reinterpret_cast<float*>(p.data[which & 3])[i] = r[i];
}
NIMBLE_KERNEL(indexed_array_of_pointers)

extern "C" __global__ void pointer_arithmetic(char* base_w, const char* base_r, long long offset, int count) {
  const int i = thread();
  if (i >= count) return;
  const float* from = reinterpret_cast<const float*>(base_r + offset) + 4;
  float* to = reinterpret_cast<float*>(base_w + 2 * offset);
  to[i] = from[i] + from[i + 1];
}
NIMBLE_KERNEL(pointer_arithmetic)

// Pointers that a loop moves along.
extern "C" __global__ void loop(float* w, const float* r, int rows, int pitch) {
  const int i = thread();
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row, r += pitch) {
    if (r[i] < 0.0f) continue;
    sum += r[i];
    *(w + row * pitch + i) = sum;
  }
}
NIMBLE_KERNEL(loop)

// Pointers that take turns: each is read and written.
extern "C" __global__ void ping_pong(float* rw_1, float* rw_2, int count, int rounds) {
  const int i = thread();
  if (i >= count) return;
  float *from = rw_1, *to = rw_2;
  for (int round = 0; round < rounds; ++round) {
    to[i] = from[i] + 1.0f;
    float* const other = from;
    from = to;
    to = other;
  }
}
NIMBLE_KERNEL(ping_pong)

extern "C" __global__ void choose(float* w, const float* r_1, const float* r_2, int first, int count) {
  const int i = thread();
  const float* from = first != 0 ? r_1 : r_2;
  if (i < count) w[i] = from[i];
}
NIMBLE_KERNEL(choose)

extern "C" __global__ void choose_target(float* w_1, float* w_2, const float* r, int count) {
  const int i = thread();
  if (i < count) (i % 3 == 0 ? w_1 : w_2)[i] = r[i];
}
NIMBLE_KERNEL(choose_target)

// Indices from memory, of 32 and of 64 bits: numbers, not addresses.
extern "C" __global__ void gather(float* w, const float* r, const int* r_index, const long long* r_index64, int count) {
  const int i = thread();
  if (i < count) w[i] = r[r_index[i]] + r[r_index64[i]];
}
NIMBLE_KERNEL(gather)

extern "C" __global__ void scatter(float* rw, const float* r, const long long* r_index, int count) {
  const int i = thread();
  if (i < count) atomicAdd(&rw[r_index[i]], r[i]);
}
NIMBLE_KERNEL(scatter)

extern "C" __global__ void histogram(unsigned* rw, const unsigned char* r, int count) {
  const int i = thread();
  if (i < count) atomicAdd(rw + r[i], 1u);
}
NIMBLE_KERNEL(histogram)

// The order in which a counter was raised decides where to write.
extern "C" __global__ void compact(float* w, unsigned* rw_counter, const float* r, int count) {
  const int i = thread();
  if (i < count && r[i] >= 0.0f) w[atomicAdd(rw_counter, 1u)] = r[i];
}
NIMBLE_KERNEL(compact)

__device__ __noinline__ float called_read(const float* from, int i) { return from[i] * from[i + 1]; }
__device__ __noinline__ void called_write(float* to, int i, float value) { to[i] = value; }

extern "C" __global__ void calls(float* w, const float* r, int count) {
  const int i = thread();
  if (i < count) called_write(w, i, called_read(r, i) + called_read(r + count, i));
}
NIMBLE_KERNEL(calls)

// What a function returns is a pointer.
__device__ __noinline__ float* called_row(float* base, int row, int pitch) { return base + row * pitch; }

extern "C" __global__ void calls_for_pointer(float* w, const float* r, int pitch, int count) {
  const int i = thread();
  if (i < count) *called_row(w, i, pitch) = r[i];
}
NIMBLE_KERNEL(calls_for_pointer)

struct View {
  float* data;
  int pitch;
};

// A structure that goes to a function by value, and one by address.
__device__ __noinline__ float called_view(View view, int i) { return view.data[i * view.pitch]; }
__device__ __noinline__ void called_view_write(const View* view, int i, float value) {
  view->data[i * view->pitch] = value;
}

extern "C" __global__ void calls_with_struct(View w, View r, int count) {
  const int i = thread();
  View local = w;
  local.pitch += 1;
  if (i < count) called_view_write(&local, i, called_view(r, i));
}
NIMBLE_KERNEL(calls_with_struct)

// Values in local memory, and pointers in local memory.
extern "C" __global__ void local_array(float* w, const float* r, int count) {
  const int i = thread();
  if (i >= count) return;
  float window[16];
  for (int k = 0; k < 16; ++k) window[(k * 7) & 15] = r[i + k];
  float sum = 0.0f;
  for (int k = 0; k < 16; ++k) sum = sum * 0.5f + window[(k * count) & 15];
  w[i] = sum;
}
NIMBLE_KERNEL(local_array)

extern "C" __global__ void pointers_in_local_array(float* w, const float* r_1, const float* r_2, const float* r_3,
                                                   int count) {
  const int i = thread();
  if (i >= count) return;
  const float* from[3] = {r_1, r_2, r_3};
  float sum = 0.0f;
  for (int k = 0; k < count; ++k) sum += from[(k + i) % 3][i];
  w[i] = sum;
}
NIMBLE_KERNEL(pointers_in_local_array)

// Addresses taken apart and put together again.
extern "C" __global__ void address_as_numbers(float* w, const float* r, int count) {
  const int i = thread();
  if (i >= count) return;
  const auto number = reinterpret_cast<unsigned long long>(r);
  const auto low = static_cast<unsigned>(number), high = static_cast<unsigned>(number >> 32);
  const unsigned long long again = static_cast<unsigned long long>(high) << 32 | (low + 4u * static_cast<unsigned>(i));
  w[i] = *reinterpret_cast<const float*>(again);
}
NIMBLE_KERNEL(address_as_numbers)

// How far two pointers are apart, to align one like the other.
extern "C" __global__ void difference(char* w, const char* r, int count) {
  const int i = thread();
  const long long shift = (w - static_cast<char*>(nullptr)) & 3;
  if (i + shift < count) w[i + shift] = r[i];
}
NIMBLE_KERNEL(difference)

// ---- what must not be proven ----

// A table of pointers in memory.
extern "C" __global__ void pointer_table(float* w, const float* const* table, int which, int count) {
  const int i = thread();
  if (i < count) w[i] = table[which][i];
}
NIMBLE_KERNEL(pointer_table)

extern "C" __global__ void pointer_table_written(float* const* table, const float* r, int tables, int count) {
  const int i = thread();
  if (i < count) table[i % tables][i] = r[i];
}
NIMBLE_KERNEL(pointer_table_written)

struct Node {
  Node* next;
  float value;
};

extern "C" __global__ void linked_list(float* w, const Node* list) {
  float sum = 0.0f;
  for (; list != nullptr; list = list->next) sum += list->value;
  *w = sum;
}
NIMBLE_KERNEL(linked_list)

// It hands its pointer on to whoever reads the slot.
extern "C" __global__ void publishes(float** w_slot, float* published) { *w_slot = published; }
NIMBLE_KERNEL(publishes)

__device__ float a_global[64];
__device__ float* a_global_pointer;

extern "C" __global__ void reads_global(float* w, int count) {
  const int i = thread();
  if (i < count) w[i] = a_global[i];
}
NIMBLE_KERNEL(reads_global)

extern "C" __global__ void writes_global(const float* r, int count) {
  const int i = thread();
  if (i < count) a_global[i] = r[i];
}
NIMBLE_KERNEL(writes_global)

extern "C" __global__ void global_pointer(const float* r, int count) {
  const int i = thread();
  if (i < count) a_global_pointer[i] = r[i];
}
NIMBLE_KERNEL(global_pointer)
