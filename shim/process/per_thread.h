// An object per thread, such as a buffer, made when the thread first asks for it.
//
// When a thread ends, a later thread takes its object over. Nothing is destroyed: other libraries' destructors, and
// those of the program's own thread-local objects, may still make calls after ours has run; such a late caller takes
// another object. There is one PerThread<T> for each T, so T should be a struct of its user's own.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "shim/process/thread_end.h"

namespace nimble::shim {

template <class T>
class PerThread {
 public:
  // The calling thread's object. Valid until the thread ends. Throws std::bad_alloc.
  static T& get() {
    if (!value_) take();
    return *value_;
  }

 private:
  struct Entry : ThreadEnd {
    T value;
  };
  struct Pool {
    std::mutex mutex;
    std::vector<Entry*> all, free;
  };

  static Pool& pool() {
    static Pool* const instance = new Pool;
    return *instance;
  }

  static void take() {
    Entry& entry = unused();
    entry.run = [](ThreadEnd& end) {
      value_ = nullptr;
      give_back(static_cast<Entry&>(end));
    };
    if (!at_thread_end(entry)) {
      give_back(entry);
      throw std::bad_alloc();
    }
    value_ = &entry.value;
  }

  static Entry& unused() {
    Pool& pool = PerThread::pool();
    const std::lock_guard lock(pool.mutex);
    if (!pool.free.empty()) {
      Entry& last = *pool.free.back();
      pool.free.pop_back();
      return last;
    }
    pool.free.reserve(pool.all.size() + 1);  // so that giving back allocates nothing
    auto made = std::make_unique<Entry>();
    pool.all.push_back(made.get());
    return *made.release();
  }

  static void give_back(Entry& entry) {
    Pool& pool = PerThread::pool();
    // In a forked child the lock's holder may be gone: then this object is leaked.
    if (const std::unique_lock lock(pool.mutex, std::try_to_lock); lock) pool.free.push_back(&entry);
  }

  static inline thread_local T* value_ __attribute__((tls_model("initial-exec"))) = nullptr;
};

}  // namespace nimble::shim
