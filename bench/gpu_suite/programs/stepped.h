// What the suite's C++ programs share: they make steps on command, and say what came of them. The commands and answers
// are those of stepped.py.
//
//   int main() {
//     Program program;
//     serve([&] { program.step(); }, [&] { program.synchronize(); }, [&] { return program.output(); });
//   }
//
// One thread. The digest is FNV-1a of 64 bits, chained over all outputs so far.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

inline std::uint64_t digest_of(const std::vector<unsigned>& words, std::uint64_t digest) {
  for (const unsigned word : words)
    for (int shift = 0; shift < 32; shift += 8) digest = (digest ^ ((word >> shift) & 255u)) * 1099511628211u;
  return digest;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// The time that this thread has run.
inline double thread_us() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// `step` submits one step, `synchronize` waits for the device, `output` gives what the steps computed. Told are the
// medians of the time until a step was submitted, of how long this thread ran in it, and of the time until the step was
// over.
template <typename Step, typename Synchronize, typename Output>
void serve(Step step, Synchronize synchronize, Output output) {
  std::printf("{\"ready\": true, \"facts\": {}}\n");
  std::fflush(stdout);
  std::uint64_t digest = 14695981039346656037u;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int count = 0;
    words >> command >> count;
    if (command != "run") break;
    std::vector<double> cpu_times, submit_times, times;
    for (int i = 0; i < count; ++i) {
      const double cpu_begin = thread_us();
      const auto begin = std::chrono::steady_clock::now();
      step();
      const auto submitted = std::chrono::steady_clock::now();
      cpu_times.push_back(thread_us() - cpu_begin);
      synchronize();
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
      submit_times.push_back(std::chrono::duration<double, std::micro>(submitted - begin).count());
    }
    digest = digest_of(output(), digest);
    std::printf(
        "{\"steps\": %d, \"submit_us\": %.3f, \"cpu_us\": %.3f, \"median_us\": %.3f, \"digest\": \"%016llx\"}\n", count,
        median(submit_times), median(cpu_times), median(times), static_cast<unsigned long long>(digest));
    std::fflush(stdout);
  }
}
