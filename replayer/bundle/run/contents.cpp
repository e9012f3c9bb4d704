#include "replayer/bundle/run/contents.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "analyzer/base/errors.h"
#include "analyzer/base/text.h"

namespace nimble::bundle {

namespace {

constexpr std::uint64_t kBufferBytes = std::uint64_t{16} << 20;
static_assert(kBufferBytes % kBundlePiece == 0);
constexpr std::uint8_t kPattern = 0xa5;

bool is_hosts(const BundleObject& object) {
  return object.memory == MemoryKind::pinned || object.memory == MemoryKind::registered;
}

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

std::uint64_t word_at(const std::uint8_t* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

Contents::Contents(LiveDriver& driver, const BundleFiles& files, const RecordedStep& step, const Payloads& payloads,
                   const Placement& placement, LiveOps& ops)
    : driver_(driver),
      files_(files),
      step_(step),
      payloads_(payloads),
      placement_(placement),
      ops_(ops),
      buffer_(kBufferBytes),
      expected_(kBundlePiece) {
  gather_sources();
  if (placement.any_moved()) check_addresses();
}

std::string Contents::find_word(const std::function<bool(std::uint64_t)>& wanted,
                                const std::function<bool(std::uint32_t)>& skipped) const {
  Bytes piece(kBundlePiece);
  const auto holds = [&](const BundleContent& content, std::uint64_t size) {
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::uint32_t bytes = piece_bytes(size, i);
      if (content[i] == kNone) continue;
      files_.read(content[i], bytes, piece.data());
      for (std::uint32_t place = 0; place + 8 <= bytes; place += 8)
        if (wanted(word_at(piece.data() + place))) return true;
    }
    return false;
  };
  const std::vector<BundleObject>& objects = files_.bundle().objects;
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (objects[i].start && holds(*objects[i].start, objects[i].size)) return "object " + std::to_string(i);
  for (std::uint32_t op = 0; op < step_.ops(); ++op)
    if (const BundlePayload* const source = payloads_.source(op))
      if (!skipped(op) && holds(source->content, source->bytes))
        return "what " + step_.describe(op) + " takes from the host";
  return {};
}

// Pointers in memory must not point to moved memory.
void Contents::check_addresses() const {
  const std::string what =
      find_word([this](std::uint64_t word) { return placement_.moved(word); }, [](std::uint32_t) { return false; });
  if (!what.empty())
    throw Refused(what + " may hold the address of memory that cannot lie at its recorded address in " +
                  "this process. Try again: the system places processes anew each time");
}

std::string Contents::leads_elsewhere(const Run& run) const {
  return find_word([&](std::uint64_t word) { return run.elsewhere(word); },
                   [&](std::uint32_t op) { return run.rewrites(op); });
}

void Contents::gather_sources() {
  for (std::uint32_t op = 0; op < step_.ops(); ++op) {
    const BundlePayload* const source = payloads_.source(op);
    if (!source) continue;
    Bytes* const own = ops_.source(op);
    if (!own && !placement_.on_host(source->address, source->bytes))
      throw analyzer::InputError(files_.manifest_path(), 0, "sources",
                                 "that of " + step_.describe(op) + " is in memory of the device");
    for (std::size_t i = 0; i < source->content.size(); ++i) {
      const std::uint32_t bytes = piece_bytes(source->bytes, i);
      files_.read(source->content[i], bytes, expected_.data());
      const auto end = expected_.begin() + static_cast<std::ptrdiff_t>(bytes);
      if (own)
        std::copy(expected_.begin(), end, own->begin() + static_cast<std::ptrdiff_t>(i * kBundlePiece));
      else
        gather_source(*source, i * kBundlePiece, Bytes(expected_.begin(), end));
    }
  }
}

// Gathers those of these bytes, `done` bytes after the source's begin, that no earlier source has brought.
void Contents::gather_source(const BundlePayload& source, std::uint64_t done, Bytes bytes) {
  for (std::uint64_t at = 0; at < bytes.size();) {
    const std::uint64_t address = source.address + done + at;
    auto next = sources_.upper_bound(address);
    if (next != sources_.begin()) {
      const auto& [begin, known] = *std::prev(next);
      if (address - begin < known.size()) {
        const std::uint64_t both = std::min<std::uint64_t>(known.size() - (address - begin), bytes.size() - at);
        if (std::memcmp(known.data() + (address - begin), bytes.data() + at, both) != 0)
          throw Refused("the program writes the host memory that op " + std::to_string(source.op) +
                        " copies twice within the step, which cannot be repeated without the program");
        at += both;
        continue;
      }
    }
    const std::uint64_t room = next == sources_.end() ? bytes.size() - at : next->first - address;
    const auto count = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(room, bytes.size() - at));
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    sources_[address] = Bytes(from, from + count);
    at += static_cast<std::uint64_t>(count);
  }
}

bool Contents::changes(const BundleObject& object) const {
  return !object.start || !object.end || *object.start != *object.end;
}

void Contents::write(std::uint64_t here, bool on_host, std::uint64_t size, const BundleContent& content) {
  std::uint64_t used = 0, begin = 0;  // in the buffer; and where that goes
  const auto send = [&] {
    if (used == 0) return;
    if (on_host) {
      std::memcpy(at(here + begin), buffer_.data(), used);
    } else {
      LiveDriver::check(driver_.cuMemcpyHtoD_(here + begin, buffer_.data(), used), "when memory is written");
    }
    begin += used;
    used = 0;
  };
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::uint32_t bytes = piece_bytes(size, i);
    files_.read(content[i], bytes, buffer_.data() + used);
    used += bytes;
    if (used + kBundlePiece > kBufferBytes) send();
  }
  send();
}

void Contents::fill(std::uint64_t here, bool on_host, std::uint64_t size) {
  if (on_host) {
    std::memset(at(here), kPattern, size);
  } else {
    LiveDriver::check(driver_.cuMemsetD8_(here, kPattern, size), "when memory is filled");
  }
}

void Contents::restore(bool all) {
  const std::vector<BundleObject>& objects = files_.bundle().objects;
  for (const BundleObject& object : objects)
    if (!object.start) fill(placement_.here(object.address), is_hosts(object), object.size);
  for (const BundleObject& object : objects)
    if (object.start && (all || changes(object)))
      write(placement_.here(object.address), is_hosts(object), object.size, *object.start);
  for (const auto& [address, bytes] : sources_) std::memcpy(at(placement_.here(address)), bytes.data(), bytes.size());
  for (std::uint32_t op = 0; op < step_.ops(); ++op)
    if (Bytes* const result = ops_.result(op)) std::fill(result->begin(), result->end(), kPattern);
  LiveDriver::check(driver_.cuCtxSynchronize_(), "when memory is put back");
}

void Contents::read_back(std::uint64_t here, bool on_host, std::uint64_t bytes, std::uint8_t* out) {
  if (on_host) {
    std::memcpy(out, at(here), bytes);
  } else {
    LiveDriver::check(driver_.cuMemcpyDtoH_(out, here, bytes), "when memory is read");
  }
}

// Whether the byte, in a piece of `size` bytes, is part of an address that corresponds to the recorded one.
bool Contents::same_word(const Run& run, const std::uint8_t* recorded, const std::uint8_t* found, std::uint32_t byte,
                         std::uint32_t size) const {
  const std::uint32_t word = byte & ~7u;
  if (word + 8 > size) return false;
  const std::uint64_t was = word_at(recorded + word), is = word_at(found + word);
  return run.same(was, is) || placement_.leads_to(was, is);
}

bool Contents::written_by_host(std::uint64_t address) const {
  const auto after = sources_.upper_bound(address);
  return after != sources_.begin() && address - std::prev(after)->first < std::prev(after)->second.size();
}

void Contents::compare_object(std::size_t index, const Run& run, std::optional<Difference>& first) {
  const BundleObject& object = files_.bundle().objects[index];
  const std::uint64_t here = placement_.here(object.address);
  bool counted = false;
  for (std::uint64_t begin = 0; begin < object.size; begin += kBufferBytes) {
    const std::uint64_t bytes = std::min(kBufferBytes, object.size - begin);
    read_back(here + begin, is_hosts(object), bytes, buffer_.data());
    for (std::uint64_t done = 0; done < bytes; done += kBundlePiece) {
      const std::uint64_t piece = (begin + done) / kBundlePiece;
      const std::uint32_t size = piece_bytes(object.size, piece);
      files_.read((*object.end)[piece], size, expected_.data());
      if (std::memcmp(expected_.data(), buffer_.data() + done, size) == 0) continue;
      for (std::uint32_t i = 0; i < size; ++i) {
        const std::uint64_t offset = begin + done + i;
        if (expected_[i] == buffer_[done + i] || written_by_host(object.address + offset)) continue;
        if (same_word(run, expected_.data(), buffer_.data() + done, i, size)) continue;
        if (!first) {
          first.emplace();
          first->what = "object " + std::to_string(index) + " (" + std::string(name(object.memory)) + ", " +
                        (object.global.empty() ? "" : object.global + ", ") + analyzer::bytes_text(object.size) + ")";
          first->offset = offset;
          first->recorded = expected_[i];
          first->found = buffer_[done + i];
          first->last_writer = step_.last_writer(object.address + offset);
        }
        ++first->bytes;
        first->objects += !std::exchange(counted, true);
      }
    }
  }
}

// The rows that the copy has written; the gaps belong to the program.
void Contents::compare_result(const BundlePayload& payload, const Run& run, std::optional<Difference>& first) {
  const TraceCall& call = step_.op(payload.op);
  const Bytes* const found = ops_.result(payload.op);
  if (!found) return;
  const std::uint64_t pitch = call.height > 1 ? call.dst.pitch : 0;
  bool counted = false;
  for (std::size_t piece = 0; piece < payload.content.size(); ++piece) {
    const std::uint32_t bytes = piece_bytes(payload.bytes, piece);
    files_.read(payload.content[piece], bytes, expected_.data());
    for (std::uint32_t at = 0; at < bytes; ++at) {
      const std::uint64_t i = piece * kBundlePiece + at;
      if (expected_[at] == (*found)[i] || (pitch != 0 && i % pitch >= call.width)) continue;
      if (same_word(run, expected_.data(), found->data() + piece * kBundlePiece, at, bytes)) continue;
      if (!first) {
        first.emplace();
        first->what = "what " + step_.describe(payload.op) + " brings to the host";
        first->offset = i;
        first->recorded = expected_[at];
        first->found = (*found)[i];
      }
      ++first->bytes;
      first->objects += !std::exchange(counted, true);
    }
  }
}

std::optional<Difference> Contents::compare(bool all, const Run& run) {
  std::optional<Difference> first;
  const std::vector<BundleObject>& objects = files_.bundle().objects;
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (objects[i].end && (all || changes(objects[i]))) compare_object(i, run, first);
  for (std::uint32_t op = 0; op < step_.ops(); ++op)
    if (const BundlePayload* const result = payloads_.result(op)) compare_result(*result, run, first);
  return first;
}

}  // namespace nimble::bundle
