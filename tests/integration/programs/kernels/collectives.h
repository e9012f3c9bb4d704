// A minimal collective library: two ranks, each a process, exchange numbers through memory that both have mapped. A
// kernel puts its own into a channel, announces its arrival, and waits for the other rank's kernel at the same channel,
// as the kernels of real libraries do. Kernels and host program (programs/ranks.cpp) include it; the kernels run on the
// simulated driver alone.
//
// A device runs one of these kernels at a time, as one does whose multiprocessors are all taken by the first. So two
// ranks that come to two channels in different order wait for each other for ever: the program looks for just that, and
// then tells the kernels to give up.
#pragma once

#include <sched.h>

#include <ctime>

inline constexpr int kRanks = 2, kChannels = 4, kNumbers = 512;
inline constexpr long kPatienceSeconds = 60;  // of a kernel, in case of the unforeseen

using Numbers = unsigned[kNumbers];

struct Channel {
  unsigned come[kRanks];  // how often each rank's kernel has come here
  unsigned stuck;         // give up: no one will come any more
  // A rank may come once more before the other has read what it left the last time.
  Numbers numbers[2][kRanks];
};

// Leaves `own` in the channel and waits for the other rank. What all ranks left there, null if no other rank came.
inline const Numbers* meet(Channel* channel, const unsigned* own, int rank, int count) {
  const unsigned turn = channel->come[rank] + 1;
  Numbers* const numbers = channel->numbers[turn % 2];
  for (int i = 0; i < count; ++i) numbers[rank][i] = own[i];
  __atomic_store_n(&channel->come[rank], turn, __ATOMIC_SEQ_CST);
  const std::time_t begin = std::time(nullptr);
  while (__atomic_load_n(&channel->come[1 - rank], __ATOMIC_SEQ_CST) < turn) {
    if (__atomic_load_n(&channel->stuck, __ATOMIC_SEQ_CST) != 0) return nullptr;
    if (std::time(nullptr) - begin > kPatienceSeconds) __atomic_store_n(&channel->stuck, 1u, __ATOMIC_SEQ_CST);
    sched_yield();
  }
  return numbers;
}

// The sum over all ranks takes the place of what each has.
inline void sum_ranks(Channel* channel, unsigned* data, int rank, int count) {
  const Numbers* const numbers = meet(channel, data, rank, count);
  for (int i = 0; numbers != nullptr && i < count; ++i) data[i] = numbers[0][i] + 3 * numbers[1][i];
}

// Each rank's numbers, one rank after the other.
inline void gather_ranks(Channel* channel, const unsigned* own, unsigned* all, int rank, int count) {
  const Numbers* const numbers = meet(channel, own, rank, count);
  for (int i = 0; numbers != nullptr && i < kRanks * count; ++i) all[i] = numbers[i / count][i % count];
}
