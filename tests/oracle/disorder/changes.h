// What is changed of one step; see disorder.h.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/oracle/disorder/disorder.h"
#include "tests/oracle/program/random.h"

namespace nimble::oracle {

class StepChanges {
 public:
  // `ops` are those of the step as it is, and become what it is then. `kept` are the buffers that were kept in earlier
  // steps and are still there; new buffers are added to the program.
  StepChanges(Program& program, std::vector<Op>& ops, std::vector<std::uint32_t>& kept)
      : program_(program), ops_(ops), kept_(kept) {}

  // Does nothing where it finds no place.
  void apply(ChangeKind kind, Random random);
  // Something that was kept is freed.
  void free_kept(Random random);
  // Leaves out what cannot be, and frees what would be left.
  void finish();

 private:
  void leave_out(Random& random);
  void add(Random& random);
  void pointer(Random& random);
  void size(Random& random);
  void kernel(Random& random);
  void keep(Random& random);
  void memory(ChangeKind kind, Random& random);
  void new_object(Random& random);
  void elsewhere(Random& random);
  void wait_event(Random& random);
  void host(ChangeKind kind, Random& random);
  void relaunch(OpKind kind, Random& random);

  std::uint32_t some(std::size_t count, Random& random) const {
    return random.below(static_cast<std::uint32_t>(count));
  }
  // Of those of which `is` says yes; null where there is none.
  template <class Is>
  Op* one_of(Is is, Random& random) {
    std::vector<Op*> found;
    for (Op& op : ops_)
      if (is(op)) found.push_back(&op);
    return found.empty() ? nullptr : found[some(found.size(), random)];
  }
  void insert(Op op, Random& random);
  // Another place for the pointer, such that the op can be as it then is.
  bool move(Op& op, std::size_t place, std::uint32_t at, Random& random) const;
  bool can_be(const Op& op) const;
  bool stays(std::uint32_t buffer) const;

  Program& program_;
  std::vector<Op>& ops_;
  std::vector<std::uint32_t>& kept_;
};

// One that `script` can have; none where there is no such op.
Fault choose_fault(const Script& script, Random& random);

}  // namespace nimble::oracle
