#include "shim/rewrite/capture/capture_requests.h"

#include <algorithm>
#include <utility>

#include "shim/state/stream_ref.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostThreads = 1024;

}  // namespace

// With the lock held.
CaptureRequests::OfThread& CaptureRequests::mine() { return threads_[thread_index()]; }

const CaptureRequests::OfThread* CaptureRequests::find() const {
  const auto found = threads_.find(thread_index());
  return found == threads_.end() ? nullptr : &found->second;
}

bool CaptureRequests::any_learns() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(threads_, [](const auto& one) { return one.second.learns; });
}

bool CaptureRequests::any() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(threads_, [](const auto& one) { return one.second.wants_more(); });
}

bool CaptureRequests::learns() const {
  const std::lock_guard lock(mutex_);
  const OfThread* const thread = find();
  return thread && thread->learns;
}

void CaptureRequests::learn(bool learns) {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  thread.learns = learns;
  if (!learns) return;
  thread.made.clear();
  thread.unplanned = 0;
  thread.made_to_learn = true;
}

void CaptureRequests::drop_plans() {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  if (!thread.learns) thread.plans.clear();
}

bool CaptureRequests::capture_again() {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  thread.plans = std::exchange(thread.made, {});
  thread.unplanned = 0;
  if (std::ranges::any_of(thread.plans, [](const Plan& plan) { return plan != nullptr; })) return true;
  // A thread that has learned captures again, whatever the outcome; one that has not may do something else now.
  if (thread.made_to_learn) thread.unplanned = thread.plans.size();
  thread.plans.clear();
  return false;
}

std::optional<CaptureRequests::Request> CaptureRequests::next() {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  if (!thread.plans.empty()) {
    Plan plan = std::move(thread.plans.front());
    thread.plans.pop_front();
    const Serve serve = plan ? Serve::planned : Serve::again;
    return Request{serve, std::move(plan)};
  }
  if (thread.learns) return Request{Serve::once, nullptr};
  if (thread.unplanned == 0) return std::nullopt;
  --thread.unplanned;
  return Request{Serve::again, nullptr};
}

void CaptureRequests::failed() {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  thread.plans.clear();
  thread.unplanned = 0;
}

void CaptureRequests::made(CUgraphExec exec) {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  thread.last = exec;
  if (!thread.learns) {
    thread.made.clear();
    thread.made_to_learn = false;
  }
  thread.made.push_back(nullptr);
  // Threads come and go: we remember only so many that seem to want nothing.
  if (threads_.size() > kMostThreads)
    std::erase_if(threads_, [&](const auto& one) {
      const OfThread& other = one.second;
      return &other != &thread && !other.wants_more() && other.unplanned == 0;
    });
}

void CaptureRequests::planned(Plan plan) {
  const std::lock_guard lock(mutex_);
  OfThread& thread = mine();
  if (!thread.made.empty()) thread.made.back() = std::move(plan);  // else it was forgotten meanwhile
}

CUgraphExec CaptureRequests::last() const {
  const std::lock_guard lock(mutex_);
  const OfThread* const thread = find();
  return thread ? thread->last : nullptr;
}

}  // namespace nimble::shim
