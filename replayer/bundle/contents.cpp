#include "replayer/bundle/contents.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "analyzer/describe.h"

namespace nimble::bundle {

namespace {

constexpr std::uint64_t kBufferBytes = std::uint64_t{16} << 20;
static_assert(kBufferBytes % kBundlePiece == 0);
constexpr std::uint8_t kPattern = 0xa5;

bool is_hosts(const BundleObject& object) {
  return object.memory == MemoryKind::pinned || object.memory == MemoryKind::registered;
}

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

Contents::Contents(LiveDriver& driver, const BundleFiles& files, const RecordedStep& step, const Placement& placement,
                   LiveOps& ops)
    : driver_(driver), files_(files), step_(step), placement_(placement), ops_(ops), buffer_(kBufferBytes) {
  gather_sources();
  if (placement.any_moved()) check_addresses();
}

// Memory that was moved cannot be pointed to by what is in memory.
void Contents::check_addresses() {
  Bytes piece(kBundlePiece);
  const auto look_at = [&](const BundleContent& content, std::uint64_t size, const std::string& what) {
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::uint32_t bytes = piece_bytes(size, i);
      if (content[i] == kNone) continue;
      files_.read(content[i], bytes, piece.data());
      for (std::uint32_t place = 0; place + 8 <= bytes; place += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, piece.data() + place, sizeof word);
        if (placement_.moved(word))
          throw Refused(what + " holds what may be the address of memory that cannot lie at its recorded address in " +
                        "this process. Try again: the system places processes anew each time");
      }
    }
  };
  for (std::size_t i = 0; i < files_.bundle().objects.size(); ++i) {
    const BundleObject& object = files_.bundle().objects[i];
    if (object.start) look_at(*object.start, object.size, "object " + std::to_string(i));
  }
  for (const BundlePayload& source : files_.bundle().sources)
    look_at(source.content, source.bytes, "what op " + std::to_string(source.op) + " copies from the host");
}

void Contents::gather_sources() {
  for (const BundlePayload& source : files_.bundle().sources) {
    if (source.op >= step_.ops() || step_.op(source.op).kind != CallKind::copy) continue;
    Bytes* const own = ops_.source(source.op);
    if (!own && !placement_.holds(source.address, source.bytes)) continue;
    Bytes bytes(source.bytes);
    for (std::size_t i = 0; i < source.content.size(); ++i)
      files_.read(source.content[i], piece_bytes(source.bytes, i), bytes.data() + i * kBundlePiece);
    if (own) {
      std::copy(bytes.begin(), bytes.end(), own->begin());  // calls hold its address
      continue;
    }
    // Piece by piece where others have been there.
    for (std::uint64_t done = 0; done < bytes.size();) {
      const std::uint64_t address = source.address + done;
      auto next = sources_.upper_bound(address);
      if (next != sources_.begin()) {
        const auto& [begin, known] = *std::prev(next);
        if (address - begin < known.size()) {
          const std::uint64_t both = std::min<std::uint64_t>(known.size() - (address - begin), bytes.size() - done);
          if (std::memcmp(known.data() + (address - begin), bytes.data() + done, both) != 0)
            throw Refused("the program fills the host's memory that op " + std::to_string(source.op) +
                          " copies twice within the step, which cannot be done without it");
          done += both;
          continue;
        }
      }
      const std::uint64_t room = next == sources_.end() ? bytes.size() - done : next->first - address;
      const auto count = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(room, bytes.size() - done));
      const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(done);
      sources_[address] = Bytes(from, from + count);
      done += static_cast<std::uint64_t>(count);
    }
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

bool Contents::written_by_host(std::uint64_t address) const {
  const auto after = sources_.upper_bound(address);
  return after != sources_.begin() && address - std::prev(after)->first < std::prev(after)->second.size();
}

void Contents::compare_object(std::size_t index, std::optional<Difference>& first) {
  const BundleObject& object = files_.bundle().objects[index];
  const std::uint64_t here = placement_.here(object.address);
  expected_.resize(kBundlePiece);
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

// The rows that the copy has brought; what lies between them is the program's.
void Contents::compare_result(const BundlePayload& payload, std::optional<Difference>& first) {
  const TraceCall& call = step_.op(payload.op);
  const Bytes* const found = ops_.result(payload.op);
  if (!found || found->size() != payload.bytes) return;
  Bytes expected(payload.bytes);
  for (std::size_t i = 0; i < payload.content.size(); ++i)
    files_.read(payload.content[i], piece_bytes(payload.bytes, i), expected.data() + i * kBundlePiece);
  bool counted = false;
  for (std::uint64_t row = 0; row < call.height; ++row) {
    const std::uint64_t begin = row * call.dst.pitch;
    for (std::uint64_t i = begin; i < begin + call.width && i < payload.bytes; ++i) {
      if (expected[i] == (*found)[i]) continue;
      if (!first) {
        first.emplace();
        first->what = "what " + step_.describe(payload.op) + " brings to the host";
        first->offset = i;
        first->recorded = expected[i];
        first->found = (*found)[i];
      }
      ++first->bytes;
      first->objects += !std::exchange(counted, true);
    }
  }
}

std::optional<Difference> Contents::compare(bool all) {
  std::optional<Difference> first;
  const std::vector<BundleObject>& objects = files_.bundle().objects;
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (objects[i].end && (all || changes(objects[i]))) compare_object(i, first);
  for (const BundlePayload& result : files_.bundle().results) compare_result(result, first);
  return first;
}

}  // namespace nimble::bundle
