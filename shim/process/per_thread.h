// Something that each thread has one of, such as a buffer, made when the thread first asks.
//
// When a thread ends, what it had goes to a thread that comes later. Nothing is destroyed: other libraries'
// destructors, and those of the program's own thread-local objects, may still make calls when ours has run; such a late
// caller takes one more. PerThread<T> is one such thing for each T, so T should be a struct of its user's own.
#pragma once

#include <mutex>
#include <vector>

namespace nimble::shim {

template <class T>
class PerThread {
 public:
  // The calling thread's. Good until the thread ends.
  static T& get() {
    if (!value_) take();
    return *value_;
  }

 private:
  struct Pool {
    std::mutex mutex;
    std::vector<T*> all, free;
  };
  struct Return {
    ~Return() {
      Pool& pool = PerThread::pool();
      // In a forked child whoever held it may be gone: then this one is of no more use.
      if (const std::unique_lock lock(pool.mutex, std::try_to_lock); lock) pool.free.push_back(value_);
      value_ = nullptr;
    }
  };

  static Pool& pool() {
    static Pool* const instance = new Pool;
    return *instance;
  }

  static void take() {
    Pool& pool = PerThread::pool();
    {
      const std::lock_guard lock(pool.mutex);
      if (pool.free.empty()) {
        pool.free.reserve(pool.all.size() + 1);  // so that giving back allocates nothing
        pool.all.push_back(new T);
        value_ = pool.all.back();
      } else {
        value_ = pool.free.back();
        pool.free.pop_back();
      }
    }
    static thread_local const Return at_end;
    static_cast<void>(&at_end);
  }

  static inline thread_local T* value_ __attribute__((tls_model("initial-exec"))) = nullptr;
};

}  // namespace nimble::shim
