#include "tests/oracle/disorder/crew.h"

#include <map>

#include "tests/integration/programs/common/driver.h"

namespace nimble::oracle {
namespace {

// What the host does alone: no other thread issues anything meanwhile.
bool alone(const Op& op) {
  switch (op.kind) {
    case OpKind::host_wait:
      return !op.places.empty();
    case OpKind::synchronize:
    case OpKind::keep:
    case OpKind::exchange:
    case OpKind::replace:
    case OpKind::renew_event:
    case OpKind::read_back:
    case OpKind::look:
    case OpKind::reloaded:
      return true;
    default:
      return false;
  }
}

}  // namespace

Crew::Crew(std::uint32_t threads, std::function<void(std::uint32_t)> issue) : issue_(std::move(issue)) {
  CUcontext context = nullptr;
  CHECK(cuCtxGetCurrent(&context));
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this, i, context] { work(i, context); });
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::run(const std::vector<Op>& ops, std::vector<std::uint32_t> by, Threads how) {
  std::unique_lock lock(mutex_);
  by_ = std::move(by);
  find_order(ops, how);
  issued_ = std::make_unique<std::atomic<bool>[]>(ops.size());
  busy_ = static_cast<std::uint32_t>(threads_.size());
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
}

void Crew::work(std::uint32_t thread, CUcontext context) {
  CHECK(cuCtxSetCurrent(context));
  for (std::uint64_t round = 1;; ++round) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return round_ == round || over_; });
      if (over_) return;
    }
    for (std::uint32_t i = 0; i < by_.size(); ++i) {
      if (by_[i] != thread) continue;
      for (const std::uint32_t before : after_[i])
        while (!issued_[before].load(std::memory_order_acquire)) std::this_thread::yield();
      issue_(i);
      issued_[i].store(true, std::memory_order_release);
    }
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) changed_.notify_all();
  }
}

void Crew::find_order(const std::vector<Op>& ops, Threads how) {
  after_.assign(ops.size(), {});
  if (how == Threads::in_turn) {
    for (std::uint32_t i = 1; i < ops.size(); ++i) after_[i] = {i - 1};
    return;
  }
  std::vector<std::uint32_t> latest;                         // the last one that was alone
  std::map<std::uint32_t, std::uint32_t> recorded;           // by event, its last record
  std::map<std::uint32_t, std::vector<std::uint32_t>> used;  // and who has used that
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    after_[i] = latest;
    if (alone(op)) {
      for (std::uint32_t j = latest.empty() ? 0 : latest[0]; j < i; ++j) after_[i].push_back(j);
      latest = {i};
    } else if (op.kind == OpKind::record) {
      after_[i].insert(after_[i].end(), used[op.event].begin(), used[op.event].end());
      used[op.event].clear();
      if (const auto found = recorded.find(op.event); found != recorded.end()) after_[i].push_back(found->second);
      recorded[op.event] = i;
    } else if (op.kind == OpKind::wait || op.kind == OpKind::host_wait || op.kind == OpKind::poll) {
      if (const auto found = recorded.find(op.event); found != recorded.end()) after_[i].push_back(found->second);
      used[op.event].push_back(i);
    }
  }
}

}  // namespace nimble::oracle
