#include "shim/record/observers/bundle/step_saver.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_map>

#include "nimble/internal/files/own_file.h"
#include "nimble/internal/launch_params.h"
#include "nimble/internal/schedule.h"
#include "shim/process/log.h"
#include "shim/state/code/function_table.h"

namespace nimble::shim {

namespace {

constexpr int kMostAttempts = 16;

}  // namespace

StepSaver::StepSaver(StepSaverOptions options, CallContext& context)
    : options_(std::move(options)), context_(context), reader_(context, kCapturePatience) {
  if (!reader_.why_not().empty()) give_up("the driver has no " + reader_.why_not());
}

StepSaver::LiveMap::iterator StepSaver::find(std::uint64_t address) {
  auto at = live_.upper_bound(address);
  if (at == live_.begin()) return live_.end();
  --at;
  return address - at->first < at->second.size ? at : live_.end();
}

void StepSaver::forget(const Call& call) {
  if (call.kind == CallKind::context_end) {
    live_.clear();
    streams_.clear();
    if (window_) refuse("a context ended in the middle of the step");
  }
  if (call.kind != CallKind::free && call.kind != CallKind::free_async) return;
  live_.erase(call.memory.address);
  const std::uint64_t size = call.kind == CallKind::free ? call.memory.size : 0;
  for (auto at = live_.lower_bound(call.memory.address); at != live_.end() && at->first - call.memory.address < size;)
    at = live_.erase(at);
}

void StepSaver::allocated(const Call& call) {
  if (call.memory.address == 0 || call.memory.size == 0) return;
  auto at = live_.lower_bound(call.memory.address);
  if (at != live_.begin() && std::prev(at)->first + std::prev(at)->second.size > call.memory.address)
    at = live_.erase(std::prev(at));
  while (at != live_.end() && at->first - call.memory.address < call.memory.size) at = live_.erase(at);
  Live& live = live_[call.memory.address];
  live.size = call.memory.size;
  live.memory = call.memory.kind;
  live.birth = watch_.ops();
  if (call.memory.kind == MemoryKind::global) {
    const GlobalName global = functions().global_at(call.memory.address);
    live.global = global.name;
    live.image = global.image;
  }
  if (!window_) return;
  // Its content comes from the step itself, or from the host.
  live.object = static_cast<std::uint32_t>(window_->objects.size());
  Object& object = window_->objects.emplace_back();
  object.facts.address = call.memory.address;
  object.facts.size = call.memory.size;
  object.facts.memory = call.memory.kind;
  object.facts.global = live.global;
  object.image = live.image;
}

// Variables that a kernel's code touches, and that the program has never looked up.
void StepSaver::add_globals(const Call& call) {
  if (call.kind != CallKind::launch) return;
  const FunctionInfo& function = context_.function(call.launch.function);
  if (!function.proof) return;
  for (const ProvenGlobal& global : function.proof->globals) {
    if (find(global.address) != live_.end()) continue;
    Live& live = live_[global.address];
    live.size = global.bytes;
    live.memory = MemoryKind::global;
    live.global = global.name;
    live.image = function.image;
  }
}

// As the analyzer's op_signature: what the op does, without the addresses and numbers in its parameters.
std::uint64_t StepSaver::signature_of(const Call& call) const {
  std::uint64_t hash = 0;
  const auto add = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  add(static_cast<std::uint64_t>(call.kind) + 1);
  add(call.stream.key);
  add(call.synchronous());
  switch (call.kind) {
    case CallKind::launch:
      add(reinterpret_cast<std::uintptr_t>(call.launch.function));
      for (int i = 0; i < 3; ++i) add(std::uint64_t{call.launch.grid[i]} << 32 | call.launch.block[i]);
      add(call.launch.shared_bytes);
      add(call.launch.cooperative);
      break;
    case CallKind::copy:
    case CallKind::set:
      add(call.transfer.src.pitch);
      add(call.transfer.dst.pitch);
      add(call.transfer.width);
      add(call.transfer.height);
      add(call.transfer.element);
      break;
    case CallKind::alloc_async:
      add(call.memory.size);
      add(call.memory.own_pool);
      break;
    default:
      break;
  }
  return hash;
}

// Every word of its arguments that points into a live object.
void StepSaver::gather_pointers(const Call& call) {
  pointers_.clear();
  const auto look_at = [&](std::uint64_t word) {
    if (!could_be_address(word)) return;
    if (const auto found = find(word); found != live_.end()) pointers_.push_back({word, found->second.birth});
  };
  if (call.kind == CallKind::copy) look_at(call.transfer.src.address);
  if (call.kind == CallKind::copy || call.kind == CallKind::set) look_at(call.transfer.dst.address);
  if (call.kind != CallKind::launch) return;
  const FunctionInfo& function = context_.function(call.launch.function);
  if (!function.params || (!call.launch.kernel_params && !call.launch.extra)) return;
  params_.assign(function.param_bytes, 0);
  if (!pack_params(call, function, params_.data())) return;
  for (const ParamLayout& param : *function.params) {
    for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, params_.data() + at, sizeof word);
      look_at(word);
    }
  }
  if (function.proof)
    for (const ProvenGlobal& global : function.proof->globals) look_at(global.address);
}

void StepSaver::before(const Call& call, bool any_captures) noexcept {
  if (off_.load(std::memory_order_relaxed)) return;
  guarded([&] { look_before(call, any_captures); });
}

void StepSaver::after(const Call& call, CUresult result, std::uint64_t seq) noexcept {
  if (off_.load(std::memory_order_relaxed) || !call.traced) return;
  guarded([&] { look_after(call, result, seq); });
}

// Runs `look` and handles its failure under the lock. Saving may be over by the time the lock is taken.
template <class Look>
void StepSaver::guarded(const Look& look) noexcept {
  const std::lock_guard lock(mutex_);
  if (off_.load(std::memory_order_relaxed)) return;
  try {
    look();
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void StepSaver::look_before(const Call& call, bool any_captures) {
  if (call.ends == Ends::stream) streams_.erase(call.stream.key);
  if (call.ends == Ends::code && window_) refuse("code was unloaded in the middle of the step");
  if (!call.traced) return;
  if (call.kind == CallKind::hidden && call.note) {
    textures_ |= call.texture;
    if (!call.texture) hidden_.insert("the program uses " + std::string(call.note));
  }
  if (!is_op(call.kind)) {
    observed_ |= call.host == HostEffect::observe;
    return forget(call);
  }
  if (any_captures) {
    if (window_) refuse("a stream captures in the middle of the step");
    return forget(call);
  }
  add_globals(call);
  const std::uint32_t period = window_ ? 0 : watch_.begins_with(signature_of(call));
  if (period != 0 && !begin(call, period)) return forget(call);
  if (window_) {
    if (call.thread != window_->thread) {
      refuse("several threads put ops on streams");
    } else if (const char* const why = why_not_replayable(call)) {
      refuse(std::string(call.symbol) + ": " + why);
    } else if (call.kind == CallKind::copy) {
      take_source(call);
    }
  }
  forget(call);
}

void StepSaver::look_after(const Call& call, CUresult result, std::uint64_t seq) {
  if (result != CUDA_SUCCESS) {
    if (window_ && is_op(call.kind)) refuse("the driver refused an op of the step", Refusal::this_time);
    return;
  }
  if (call.kind == CallKind::alloc || call.kind == CallKind::alloc_async) allocated(call);
  if (!is_op(call.kind)) return;
  streams_[call.stream.key] = call.stream;
  gather_pointers(call);
  watch_.add({signature_of(call), call.kind == CallKind::launch, observed_}, pointers_);
  observed_ = false;
  if (watch_.full() && !window_)
    return give_up("no step repeated among the first " + std::to_string(StepWatch::kMostOps) + " ops");
  if (!window_) return;
  // The last op of a step may be the program's last; it is a repeat even if nothing follows.
  if (!watch_.repeats(window_->period)) return refuse("a step turned out to differ from the ones before");
  take_op(call, seq);
  if (window_ && window_->images.size() == window_->period) end(call);
}

// What in the step a bundle could not reproduce; null if nothing.
const char* StepSaver::why_not_replayable(const Call& call) const {
  switch (call.kind) {
    case CallKind::launch:
      for (std::uint32_t i = 0; i < call.launch.attribute_count; ++i)
        if (meaningful(call.launch.attributes[i])) return "a launch with attributes";
      return context_.function(call.launch.function).params ? nullptr : "a kernel whose parameter layout is not known";
    case CallKind::copy:
    case CallKind::set:
      return call.plain ? nullptr : "a copy or set with flags, or between contexts";
    case CallKind::event_record:
    case CallKind::event_wait:
      return call.plain ? nullptr : "an event with flags";
    case CallKind::alloc_async:
    case CallKind::free_async:
      return nullptr;
    case CallKind::host_function:
      return "a host function";
    case CallKind::graph_launch:
      return "a CUDA graph of the program";
    default:
      return "what it does is not read";
  }
}

bool StepSaver::begin(const Call& call, std::uint32_t period) {
  if (++attempts_ > kMostAttempts) {
    give_up("after " + std::to_string(kMostAttempts) + " attempts: " + why_none_);
    return false;
  }
  window_ = std::make_unique<Window>(options_.limit_bytes);
  window_->period = period;
  window_->thread = call.thread;
  for (auto& [base, live] : live_) {
    live.object = static_cast<std::uint32_t>(window_->objects.size());
    Object& object = window_->objects.emplace_back();
    object.facts.address = base;
    object.facts.size = live.size;
    object.facts.memory = live.memory;
    object.facts.global = live.global;
    object.image = live.image;
  }
  if (settle_all(call)) read_all(call, &BundleObject::start);
  return window_ != nullptr;
}

void StepSaver::touch(std::uint64_t address) {
  const auto found = find(address);
  if (found != live_.end() && found->second.object != kNone) window_->objects[found->second.object].touched = true;
}

void StepSaver::take_op(const Call& call, std::uint64_t seq) {
  Bundle& bundle = window_->bundle;
  if (window_->images.empty()) bundle.first_seq = seq;
  bundle.last_seq = seq;
  for (const StepWatch::Pointer& pointer : pointers_) touch(pointer.word);
  if (call.kind == CallKind::copy) take_result(call);
  if (!window_) return;
  const ImageInfo* image = nullptr;
  if (call.kind == CallKind::launch) {
    const FunctionInfo& function = context_.function(call.launch.function);
    image = function.image;
    if (!image) return refuse("kernel " + function.name + " comes from code that was not seen being loaded");
    if (textures_ && !function.proof)
      return refuse("kernel " + function.name + " may read a texture or a surface, which no bundle can hold");
    if (!function.self_contained && !function.proof) {
      // Any known variable of its image.
      for (const auto& [base, live] : live_)
        if (live.memory == MemoryKind::global && live.image == image) touch(base);
      window_->hidden.insert("kernel " + function.name + " may reach unknown memory: " + function.why);
    }
  }
  window_->images.push_back(image);
}

void StepSaver::end(const Call& call) {
  if (settle_all(call)) read_all(call, &BundleObject::end);
  if (window_) save();
}

// Keeps the objects that the step can reach, and writes the bundle.
void StepSaver::save() {
  Window& window = *window_;
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = 0; i < window.objects.size(); ++i)
    if (window.objects[i].touched) open.push_back(i);
  while (!open.empty()) {
    const std::uint32_t from = open.back();
    open.pop_back();
    for (const std::uint32_t to : window.objects[from].leads_to)
      if (!std::exchange(window.objects[to].touched, true)) open.push_back(to);
  }
  Bundle& bundle = window.bundle;
  bundle.ops = window.period;
  std::vector<std::string> images;
  std::unordered_map<const ImageInfo*, std::uint32_t> index;
  const auto index_of = [&](const ImageInfo* image) -> std::uint32_t {
    if (!image) return kNone;
    const auto [known, fresh] = index.try_emplace(image, static_cast<std::uint32_t>(images.size()));
    if (fresh) images.push_back(functions().image_bytes(image));
    return known->second;
  };
  for (const ImageInfo* image : window.images) bundle.images_of_ops.push_back(index_of(image));
  for (Object& object : window.objects) {
    if (!object.touched) continue;
    if (!object.unreadable.empty()) {
      return refuse("the step may touch " + std::string(name(object.facts.memory)) +
                    " memory that cannot be saved: " + object.unreadable);
    }
    object.facts.image = index_of(object.image);
    if (object.facts.memory == MemoryKind::global && (!object.image || object.facts.global.empty()))
      return refuse("the step touches a variable of code that was not seen being loaded");
    bundle.objects.push_back(std::move(object.facts));
  }
  if (std::any_of(images.begin(), images.end(), [](const std::string& bytes) { return bytes.empty(); }))
    return refuse("the code of a kernel of the step is no longer available");
  window.hidden.insert(hidden_.begin(), hidden_.end());
  bundle.hidden.assign(window.hidden.begin(), window.hidden.end());
  saved_.clear();  // the old manifest goes first
  if (const std::string why = folder_.write(options_.folder, bundle, window.store, images); !why.empty())
    return give_up(why);
  std::uint64_t bytes = 0;
  for (const BundlePiece& piece : bundle.pieces) bytes += piece.bytes;
  saved_ = "a step of " + std::to_string(bundle.ops) + " ops, with " + std::to_string(bundle.objects.size()) +
           " objects and " + std::to_string((bytes + 1023) >> 10) + " KiB of memory";
  watch_.settle(window.period);
  window_.reset();
}

void StepSaver::refuse(const std::string& why, Refusal how) {
  why_none_ = why;
  if (how == Refusal::for_good && window_ && watch_.repeats(window_->period)) watch_.settle(window_->period);
  window_.reset();
}

void StepSaver::give_up(const std::string& why) noexcept {
  off_ = true;
  window_.reset();
  try {
    why_none_ = why;
  } catch (...) {
  }
}

// What calls may be waiting for happens under their lock; the trace, which may be long, is copied without it.
void StepSaver::finish(const std::string& trace) noexcept try {
  const std::lock_guard finishing(finishing_);
  std::string none;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    off_ = true;
    window_.reset();
    if (saved_.empty()) {
      if (watch_.ops() == 0 && why_none_.empty()) return;
      none = why_none_.empty() ? "no step repeated three times and then once more" : why_none_;
    }
  }
  if (!none.empty()) return log(LogLevel::warning, "NIMBLE_CAPTURE: no bundle was saved: " + none);
  const std::string why = folder_.add_trace(trace);
  const std::string& folder = folder_.path();
  const std::string other =
      folder_.why_other().empty() ? std::string() : left_alone(options_.folder, folder_.why_other()) + ": ";
  folder_.let_go();
  if (!why.empty())
    return log(LogLevel::error, "NIMBLE_CAPTURE: the trace could not be put into the bundle " + folder + ": " + why);
  log(other.empty() ? LogLevel::info : LogLevel::warning,
      other + folder + ": " + saved_ + ". Next: nimble-replay " + folder);
} catch (...) {
}

}  // namespace nimble::shim
