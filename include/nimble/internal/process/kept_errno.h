// Keeps errno as it is for a scope: a call of the program that we have intercepted must not change it.
#pragma once

#include <cerrno>

namespace nimble {

class KeptErrno {
 public:
  KeptErrno() noexcept = default;
  ~KeptErrno() { errno = error_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  const int error_ = errno;
};

}  // namespace nimble
