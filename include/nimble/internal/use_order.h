// Which step-local objects may share bytes: those where, by the schedule's order, all uses of one precede all uses of
// the other. Used to make the memory plan, and to check a plan that is read from a file.
//
// A schedule orders ops in different segments, and direct ops with everything; inside a segment, ops that are joined by
// a path of edges. Ops that go to the driver call by call, since they could not be submitted as a graph, only have the
// program's own order, which may be partial on several streams. Op numbers are indices into the step. Built by one
// thread; then constant. No errors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble {

// Paths between the ops of each segment. The ops are put on chains along edges; for each op we know how much of every
// chain precedes it. Time and memory are ops times chains, so of very many chains only the longest are tracked, and ops
// on the others count as unordered.
class SegmentPaths {
 public:
  using Edge = std::array<std::uint32_t, 2>;

  // `segment`: per op, kNone for those in no segment. `edges`: per segment, from an earlier to a later of its ops.
  SegmentPaths(std::span<const std::uint32_t> segment, std::vector<std::vector<Edge>> edges)
      : segment_(segment.begin(), segment.end()), node_(segment.size(), 0), chain_(segment.size(), kNone) {
    std::vector<std::vector<std::uint32_t>> ops(edges.size());
    for (std::uint32_t op = 0; op < segment_.size(); ++op) {
      if (segment_[op] == kNone) continue;
      node_[op] = static_cast<std::uint32_t>(ops[segment_[op]].size());
      ops[segment_[op]].push_back(op);
    }
    const std::size_t at_most = std::max<std::size_t>(kMostEntries / std::max<std::size_t>(segment_.size(), 1), 16);
    for (std::size_t s = 0; s < edges.size(); ++s) reach_.push_back(follow(ops[s], std::move(edges[s]), at_most));
  }

  std::uint32_t segment(std::uint32_t op) const { return segment_[op]; }
  // Ops of a segment on the same chain are ordered.
  std::uint32_t chain(std::uint32_t op) const { return chain_[op]; }

  // Whether one precedes the other. Both must be in the same segment.
  bool before(std::uint32_t from, std::uint32_t to) const {
    const Reach& reach = reach_[segment_[from]];
    const std::uint32_t column = reach.column[chain_[from]];
    return column != kNone && reach.far[std::size_t{node_[to]} * reach.columns + column] > node_[from];
  }

 private:
  static constexpr std::size_t kMostEntries = std::size_t{1} << 26;
  struct Reach {
    std::vector<std::uint32_t> column;  // per chain, kNone if it is not tracked
    std::uint32_t columns = 0;
    // Per op and column: one more than the last node of that chain that is this one or precedes it; 0 for none.
    std::vector<std::uint32_t> far;
  };

  Reach follow(const std::vector<std::uint32_t>& ops, std::vector<Edge> edges, std::size_t at_most) {
    std::sort(edges.begin(), edges.end(),
              [](const Edge& a, const Edge& b) { return a[1] != b[1] ? a[1] < b[1] : a[0] < b[0]; });
    std::vector<std::uint32_t> length;  // per chain
    std::vector<bool> goes_on(ops.size(), false);
    auto edge = edges.begin();
    for (const std::uint32_t op : ops) {
      for (; edge != edges.end() && (*edge)[1] == op; ++edge) {
        if (chain_[op] != kNone || goes_on[node_[(*edge)[0]]]) continue;
        goes_on[node_[(*edge)[0]]] = true;
        chain_[op] = chain_[(*edge)[0]];
      }
      if (chain_[op] == kNone) {
        chain_[op] = static_cast<std::uint32_t>(length.size());
        length.push_back(0);
      }
      ++length[chain_[op]];
    }
    Reach reach;
    reach.columns = static_cast<std::uint32_t>(std::min(length.size(), at_most));
    reach.column.assign(length.size(), kNone);
    std::vector<std::uint32_t> longest(length.size());
    for (std::uint32_t c = 0; c < longest.size(); ++c) longest[c] = c;
    std::stable_sort(longest.begin(), longest.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return length[a] > length[b]; });
    for (std::uint32_t c = 0; c < reach.columns; ++c) reach.column[longest[c]] = c;
    reach.far.assign(ops.size() * reach.columns, 0);
    edge = edges.begin();
    for (const std::uint32_t op : ops) {
      std::uint32_t* const mine = reach.far.data() + std::size_t{node_[op]} * reach.columns;
      for (; edge != edges.end() && (*edge)[1] == op; ++edge) {
        const std::uint32_t* const other = reach.far.data() + std::size_t{node_[(*edge)[0]]} * reach.columns;
        for (std::uint32_t c = 0; c < reach.columns; ++c) mine[c] = std::max(mine[c], other[c]);
      }
      if (const std::uint32_t column = reach.column[chain_[op]]; column != kNone) mine[column] = node_[op] + 1;
    }
    return reach;
  }

  std::vector<std::uint32_t> segment_, node_, chain_;  // per op; node_: its place in its segment
  std::vector<Reach> reach_;                           // per segment
};

// The program's own order of its step's ops: by streams, and by events that the step itself records and waits for.
class StreamPaths {
 public:
  // Per op its stream, all below `streams`, and for a wait the earlier op that recorded its event; kNone for other ops.
  StreamPaths(std::span<const std::uint32_t> stream, std::span<const std::uint32_t> record, std::uint32_t streams)
      : streams_(streams), stream_(stream.begin(), stream.end()) {
    if (streams_ == 1) return;
    std::vector<std::uint32_t> last(streams_, kNone);  // op, per stream
    clocks_.assign(stream_.size() * streams_, 0);
    for (std::uint32_t op = 0; op < stream_.size(); ++op) {
      std::uint32_t* const mine = clocks_.data() + std::size_t{op} * streams_;
      for (const std::uint32_t before : {last[stream_[op]], record[op]}) {
        if (before == kNone) continue;
        const std::uint32_t* const other = clocks_.data() + std::size_t{before} * streams_;
        for (std::uint32_t s = 0; s < streams_; ++s) mine[s] = std::max(mine[s], other[s]);
      }
      mine[stream_[op]] = op + 1;
      last[stream_[op]] = op;
    }
  }

  std::uint32_t segment(std::uint32_t) const { return 0; }  // it has no segments
  std::uint32_t chain(std::uint32_t op) const { return stream_[op]; }
  bool before(std::uint32_t from, std::uint32_t to) const {
    if (stream_[from] == stream_[to]) return from < to;
    return clocks_[std::size_t{to} * streams_ + stream_[from]] > from;
  }

 private:
  std::uint32_t streams_;
  std::vector<std::uint32_t> stream_;
  // Per op and stream: one more than the last op of that stream that is this one or precedes it; 0 for none.
  std::vector<std::uint32_t> clocks_;
};

// The first and last uses of objects. Paths is SegmentPaths or StreamPaths.
template <class Paths>
class UseOrder {
 public:
  UseOrder(const Paths& paths, std::size_t objects) : paths_(paths), uses_(objects) {}

  // The op uses the object. Ops come in ascending order.
  void use(std::uint32_t object, std::uint32_t op) {
    Uses& uses = uses_[object];
    const std::uint32_t segment = paths_.segment(op);
    if (!uses.any) {
      uses.first_segment = uses.last_segment = segment;
      uses.first_op = op;
    }
    uses.last_op = op;
    if (uses.last_segment != segment) uses.last.clear();
    uses.last_segment = segment;
    if (segment != kNone) {
      const auto same = [&](std::uint32_t other) { return paths_.chain(other) == paths_.chain(op); };
      if (segment == uses.first_segment && std::none_of(uses.first.begin(), uses.first.end(), same))
        uses.first.push_back(op);
      const auto found = std::find_if(uses.last.begin(), uses.last.end(), same);
      found == uses.last.end() ? uses.last.push_back(op) : void(*found = op);
    }
    uses.any = true;
  }

  bool used(std::uint32_t object) const { return uses_[object].any; }

  // Whether all uses of one precede all uses of the other, or are the same op. That one is released before the other is
  // allocated does not imply this: by a stale pointer an op may count as a user of released memory.
  bool before(std::uint32_t one, std::uint32_t other) const {
    const Uses &a = uses_[one], &b = uses_[other];
    if (!a.any || !b.any) return true;
    if (a.last_op > b.first_op) return false;
    if (a.last_segment == kNone || a.last_segment != b.first_segment) return true;
    return std::all_of(a.last.begin(), a.last.end(), [&](std::uint32_t from) {
      return std::all_of(b.first.begin(), b.first.end(), [&](std::uint32_t to) { return paths_.before(from, to); });
    });
  }

 private:
  struct Uses {
    bool any = false;
    std::uint32_t first_op = kNone, last_op = kNone;
    // Per chain, the first use in the segment of the first use, and the last in that of the last.
    std::uint32_t first_segment = kNone, last_segment = kNone;
    std::vector<std::uint32_t> first, last;
  };

  const Paths& paths_;
  std::vector<Uses> uses_;
};

// Both orders: as graphs, and call by call on the program's own streams. A step that goes to the driver call by call
// may hold an op that the schedule does not know, on any object that the program has at the time: so there an object
// counts as used from its allocation to its release, whether or not any op of the schedule uses it.
class BothOrders {
 public:
  BothOrders(const SegmentPaths& graphs, const StreamPaths& streams, std::size_t objects)
      : graphs_(graphs, objects), streams_(streams, objects) {}

  // As in UseOrder.
  void use(std::uint32_t object, std::uint32_t op) {
    graphs_.use(object, op);
    streams_.use(object, op);
  }
  // The op allocates or releases the object. In ascending order with the others.
  void bounds(std::uint32_t object, std::uint32_t op) { streams_.use(object, op); }

  const UseOrder<SegmentPaths>& graphs() const { return graphs_; }
  const UseOrder<StreamPaths>& streams() const { return streams_; }
  bool before(std::uint32_t one, std::uint32_t other) const {
    return graphs_.before(one, other) && streams_.before(one, other);
  }

 private:
  UseOrder<SegmentPaths> graphs_;
  UseOrder<StreamPaths> streams_;
};

// The last user of each byte of the arena, as a step proceeds.
class LastUsers {
 public:
  // Whether the object may have these bytes now, given their earlier users.
  bool free_for(const BothOrders& order, std::uint32_t object, std::uint64_t begin, std::uint64_t end) const {
    return graphs_.free_for(order.graphs(), object, begin, end) &&
           streams_.free_for(order.streams(), object, begin, end);
  }

  // It takes them. Whatever is ordered after it is ordered after all before it, if it is used at all.
  void take(const BothOrders& order, std::uint32_t object, std::uint64_t begin, std::uint64_t end) {
    graphs_.take(order.graphs(), object, begin, end);
    streams_.take(order.streams(), object, begin, end);
  }

 private:
  // For one of the orders.
  class Pieces {
   public:
    template <class Paths>
    bool free_for(const UseOrder<Paths>& order, std::uint32_t object, std::uint64_t begin, std::uint64_t end) const {
      auto at = pieces_.upper_bound(begin);
      if (at != pieces_.begin()) --at;
      for (; at != pieces_.end() && at->first < end; ++at)
        if (at->second.end > begin && !order.before(at->second.object, object)) return false;
      return true;
    }

    template <class Paths>
    void take(const UseOrder<Paths>& order, std::uint32_t object, std::uint64_t begin, std::uint64_t end) {
      if (!order.used(object) || begin == end) return;
      split(begin);
      split(end);
      pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
      pieces_[begin] = {end, object};
    }

   private:
    struct Piece {
      std::uint64_t end;
      std::uint32_t object;
    };

    void split(std::uint64_t at) {
      const auto after = pieces_.upper_bound(at);
      if (after == pieces_.begin()) return;
      Piece& piece = std::prev(after)->second;
      if (std::prev(after)->first == at || piece.end <= at) return;
      pieces_[at] = piece;
      piece.end = at;
    }

    std::map<std::uint64_t, Piece> pieces_;  // by begin; without overlap
  };

  Pieces graphs_, streams_;
};

}  // namespace nimble
