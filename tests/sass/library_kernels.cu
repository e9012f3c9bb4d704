// Kernels of CUB and Thrust, which come with the toolkit, and kernels that use their parts.
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <cub/cub.cuh>

template <class T, int kThreads>
__global__ void block_sum(const T* in, T* out, int n) {
  using Reduce = cub::BlockReduce<T, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const T sum = Reduce(storage).Sum(i < n ? in[i] : T{});
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
template __global__ void block_sum<int, 128>(const int*, int*, int);
template __global__ void block_sum<double, 64>(const double*, double*, int);

template <class T, int kThreads, int kItems>
__global__ void block_scan(T* in, T* out, T* total, int n) {
  using Load = cub::BlockLoad<T, kThreads, kItems, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<T, kThreads, kItems, cub::BLOCK_STORE_TRANSPOSE>;
  using Scan = cub::BlockScan<T, kThreads>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
  } storage;
  T items[kItems], sum;
  Load(storage.load).Load(in + blockIdx.x * kThreads * kItems, items, n, T{});
  __syncthreads();
  Scan(storage.scan).ExclusiveSum(items, items, sum);
  __syncthreads();
  Store(storage.store).Store(out + blockIdx.x * kThreads * kItems, items, n);
  if (threadIdx.x == 0) total[blockIdx.x] = sum;
}
template __global__ void block_scan<int, 64, 4>(int*, int*, int*, int);
template __global__ void block_scan<float, 32, 3>(float*, float*, float*, int);

template <class Key, class Value, int kThreads, int kItems>
__global__ void block_sort(Key* keys, Value* values, int begin, int end) {
  using Sort = cub::BlockRadixSort<Key, kThreads, kItems, Value>;
  __shared__ typename Sort::TempStorage storage;
  Key k[kItems];
  Value v[kItems];
  cub::LoadDirectBlocked(threadIdx.x, keys, k);
  cub::LoadDirectBlocked(threadIdx.x, values, v);
  Sort(storage).Sort(k, v, begin, end);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, keys, k);
  cub::StoreDirectStriped<kThreads>(threadIdx.x, values, v);
}
template __global__ void block_sort<unsigned, int, 64, 4>(unsigned*, int*, int, int);

struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};
template <int kThreads, int kItems>
__global__ void block_merge_sort(const int* in, int* out, int n) {
  using Sort = cub::BlockMergeSort<int, kThreads, kItems>;
  __shared__ typename Sort::TempStorage storage;
  int items[kItems];
  cub::LoadDirectBlocked(threadIdx.x, in, items, n, 0x7fffffff);
  Sort(storage).Sort(items, Less{});
  cub::StoreDirectBlocked(threadIdx.x, out, items, n);
}
template __global__ void block_merge_sort<64, 3>(const int*, int*, int);

__global__ void block_histogram(const unsigned char* in, int* bins, int n) {
  using Histogram = cub::BlockHistogram<unsigned char, 64, 4, 256, cub::BLOCK_HISTO_ATOMIC>;
  __shared__ typename Histogram::TempStorage storage;
  __shared__ int counts[256];
  unsigned char items[4];
  cub::LoadDirectBlocked(threadIdx.x, in, items, n, static_cast<unsigned char>(0));
  Histogram(storage).Histogram(items, counts);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += 64) atomicAdd(&bins[i], counts[i]);
}

__global__ void warp_parts(const int* in, int* sums, int* scans, int* best) {
  __shared__ cub::WarpReduce<int>::TempStorage reduce[4];
  __shared__ cub::WarpScan<int>::TempStorage scan[4];
  const int warp = threadIdx.x / 32, value = in[threadIdx.x];
  int prefix;
  cub::WarpScan<int>(scan[warp]).InclusiveSum(value, prefix);
  scans[threadIdx.x] = prefix;
  const int sum = cub::WarpReduce<int>(reduce[warp]).Sum(value);
  if (threadIdx.x % 32 == 0) sums[warp] = sum;
  best[threadIdx.x] = __shfl_xor_sync(~0u, value, 5);
}

struct Differ {
  __device__ bool operator()(int a, int b) const { return a != b; }
};
__global__ void heads(const int* in, int* flags, int n) {
  using Discontinuity = cub::BlockDiscontinuity<int, 64>;
  __shared__ typename Discontinuity::TempStorage storage;
  int items[2], marks[2];
  cub::LoadDirectBlocked(threadIdx.x, in, items, n, 0);
  Discontinuity(storage).FlagHeads(marks, items, Differ{});
  cub::StoreDirectBlocked(threadIdx.x, flags, marks, n);
}

struct Twice {
  __host__ __device__ float operator()(float x) const { return 2 * x; }
};
struct IsOdd {
  __host__ __device__ bool operator()(int x) const { return x & 1; }
};

// What the host would call: so the kernels are made.
void use_all(void* storage, std::size_t& bytes, int* a, int* b, float* f, unsigned* keys, int* count, int n) {
  cub::DeviceReduce::Sum(storage, bytes, a, b, n);
  cub::DeviceReduce::ArgMin(storage, bytes, a, reinterpret_cast<cub::KeyValuePair<int, int>*>(b), n);
  cub::DeviceScan::InclusiveSum(storage, bytes, a, b, n);
  cub::DeviceSelect::If(storage, bytes, a, b, count, n, IsOdd{});
  cub::DeviceRunLengthEncode::Encode(storage, bytes, a, b, count, count, n);
  cub::DeviceHistogram::HistogramEven(storage, bytes, a, b, 17, 0, 256, n);
  cub::DeviceRadixSort::SortPairs(storage, bytes, keys, keys + n, a, b, n);
  cub::DeviceSegmentedReduce::Sum(storage, bytes, a, b, n, count, count + 1);
  cub::DeviceMergeSort::SortKeys(storage, bytes, a, n, Less{});
  const thrust::device_ptr<float> begin(f);
  thrust::transform(thrust::device, begin, begin + n, begin, Twice{});
}
