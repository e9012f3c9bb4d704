#include "shim/process/thread_end.h"

#include <pthread.h>

#include <utility>

namespace nimble::shim {

namespace {

// What runs may take objects anew: those wait for the next round of destructors.
void run_all(void* first) {
  for (auto* at = static_cast<ThreadEnd*>(first); at;) {
    ThreadEnd& end = *std::exchange(at, at->next);
    end.run(end);
  }
}

struct Key {
  pthread_key_t key{};
  bool made = pthread_key_create(&key, run_all) == 0;
};

// Never deleted: threads may end while the process does.
const Key& key() {
  static const Key instance;
  return instance;
}

__attribute__((constructor)) void reserve() { key(); }

}  // namespace

bool at_thread_end(ThreadEnd& end) noexcept {
  if (!key().made) return false;
  end.next = static_cast<ThreadEnd*>(pthread_getspecific(key().key));
  return pthread_setspecific(key().key, &end) == 0;
}

}  // namespace nimble::shim
