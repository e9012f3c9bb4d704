// An object per thread, such as a buffer, made when the thread first asks for it.
//
// When a thread ends, a later thread takes its object over. Nothing is destroyed: other libraries' destructors, and
// those of the program's own thread-local objects, may still make calls after ours has run; such a late caller takes
// another object. There is one PerThread<T> for each T, so T should be a struct of its user's own.
#pragma once

#include <mutex>
#include <vector>

namespace nimble::shim {

template <class T>
class PerThread {
 public:
  // The calling thread's object. Valid until the thread ends.
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
      // In a forked child the lock's holder may be gone: then this object is leaked.
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
