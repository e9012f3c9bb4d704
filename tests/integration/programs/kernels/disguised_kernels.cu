// Kernels to which pointers come in other clothes: no word of a parameter, or of memory, is the address itself. Their
// code is ordinary, and is proven as far as it goes.
#include "tests/simcuda/image/kernel.h"
#ifdef __CUDACC__
#include <cstdint>
#include <cstring>
#endif

struct Node {
  unsigned long long next;  // with 16 bits of a tag on top
  int value;
};
extern "C" __global__ void walk(Node* head) {
  for (Node* node = head; node; node = (Node*)((long long)(node->next << 16) >> 16)) node->value = node->value * 3 + 1;
}
NIMBLE_KERNEL(walk)

extern "C" __global__ void masked(unsigned long long tagged, int* out) {
  const int* data = (const int*)(tagged & 0x0000ffffffffffffull);
  out[2] = out[2] * 7 + data[2];
}
NIMBLE_KERNEL(masked)

extern "C" __global__ void halves(int factor, unsigned low, unsigned high, int* out) {
  const int* data = (const int*)(((unsigned long long)high << 32) | low);
  out[2] = out[2] * 7 + data[2] * factor;
}
NIMBLE_KERNEL(halves)

extern "C" __global__ void apart(unsigned long long base, unsigned long long distance, int* out) {
  const int* data = (const int*)(base - distance);
  out[2] = out[2] * 7 + data[2];
}
NIMBLE_KERNEL(apart)

struct __attribute__((packed, aligned(4))) Job {
  int factor;
  int* data;
  int more;
};
extern "C" __global__ void packed(Job job, int* out) { out[2] = out[2] * 7 + job.data[2] * job.factor + job.more; }
NIMBLE_KERNEL(packed)

// Puts a pointer into a table, byte by byte, and follows what is there.
extern "C" __global__ void put(char* table, int* data) { memcpy(table, &data, sizeof data); }
NIMBLE_KERNEL(put)

struct Table {
  int** entries;
  int count;
};
// Its name tells the types of its parameters, and so what it cannot touch.
__global__ void follow(Table table, int* out) {
  for (int i = 0; i < table.count; ++i) out[2] = out[2] * 7 + table.entries[i][2];
}
NIMBLE_KERNEL(follow)

// The same as `masked`, or none.
extern "C" __global__ void sometimes(unsigned long long tagged, int* out) {
  const int* data = (const int*)(tagged & 0x0000ffffffffffffull);
  out[2] = out[2] * 7 + (data ? data[2] : 1);
}
NIMBLE_KERNEL(sometimes)

extern "C" __global__ void units(unsigned long long base, unsigned long long units, int* out) {
  const int* data = (const int*)(base + (units << 4));
  out[2] = out[2] * 7 + (data ? data[2] : 1);
}
NIMBLE_KERNEL(units)

// An array that is counted from one, or none. Its name says what it reads.
__global__ void counted(int* out, const int* data) { out[2] = out[2] * 7 + (data ? data[3] : 1); }
NIMBLE_KERNEL(counted)

// As cuBLAS's kernels have their factors: in memory, or beside. Nobody looks at the address then, and it may be
// anything.
struct Factor {
  const int* address;
  int value;
  unsigned in_memory;
};
extern "C" __global__ void flagged(Factor factor, int* out) {
  out[2] = out[2] * 7 + (factor.in_memory == 1 ? factor.address[2] : factor.value);
}
NIMBLE_KERNEL(flagged)

extern "C" __global__ void next(int* data, const int* change) { data[2] = data[2] * 5 + change[2]; }
NIMBLE_KERNEL(next)
