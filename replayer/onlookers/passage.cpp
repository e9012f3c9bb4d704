#include "replayer/onlookers/passage.h"

#include <pthread.h>

#include <memory>
#include <new>

namespace nimble {

PassageOfThread* PassageOfThread::mine() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    const bool good = pthread_key_create(&made, [](void* old) { delete static_cast<PassageOfThread*>(old); }) == 0;
    return good ? made : ~pthread_key_t{0};
  }();
  if (key == ~pthread_key_t{0}) return nullptr;
  if (void* const known = pthread_getspecific(key)) return static_cast<PassageOfThread*>(known);
  std::unique_ptr<PassageOfThread> made(new (std::nothrow) PassageOfThread);
  return made && pthread_setspecific(key, made.get()) == 0 ? made.release() : nullptr;
}

}  // namespace nimble
