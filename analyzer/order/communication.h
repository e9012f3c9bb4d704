// Which ops of the step may be communicating while they run: with another process, another device, or the host.
//
// A collective waits until its peers' kernels run; a kernel that reads memory which the host writes may be waiting for
// the host. If two such ops change places in one process and not in the other, both wait forever. A message through
// memory that others can reach may be about other such memory: a flag says that a buffer is filled. And the host may be
// watching the memory that it shares with the device, with no call to the driver: what it sees there tells it that
// everything is done that the program had put before. So
//   - ops that may communicate keep the program's order among each other;
//   - if they touch memory that others can reach, they keep it with all other ops that touch such memory;
//   - ops that write such memory, copies and sets among them, come after all that the program has put before them
//     (`tells`), as a record of an event does;
//   - a launch that reads such memory comes before all that the program has put after it (`hears`).
// If a rule says whether an op communicates, that is all there is to it: the last two do not apply.
//
// Ops of other streams, outside of any step, may be watching as well (analyzer/order/onlookers.h): memory that they
// touch counts as memory that others can reach; and the last two apply to every op that reads or writes there, even a
// copy, whatever a rule says.
//
// Blocks of a kernel may wait for each other without a cooperative launch, which would guarantee them room. Two such
// kernels side by side, or one beside a collective, may each hold the room that the other's blocks need, and wait
// forever. So kernels that a rule says this about (analyzer/rules/cudnn.json) keep the program's order among each other
// and with ops that may communicate (`blocks_wait`). If the program has left such kernels unordered, they stay so.
//
// An op may communicate if it is a launch that touches memory that others can reach, unless a rule says that it does
// not; or a launch that a rule says it about (analyzer/rules/collectives.json). A kernel that nothing is known about is
// ordered with everything anyway. No errors; one thread.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/access/access.h"
#include "analyzer/rules/rules.h"

namespace nimble::analyzer {

// Whether anything besides this device's streams reads or writes memory of this kind.
bool reached_by_others(MemoryKind memory);

// Fills in what `accesses`, complete otherwise, says about communication. `watched`: what watched_objects() found. A
// rule that says "does not communicate" counts only where declarations are believed.
void find_communication(const Trace& trace, const StepObjects& objects, std::span<const std::uint8_t> watched,
                        std::span<const std::uint32_t> calls, const Rules& rules, Evidence trust,
                        StepAccesses& accesses);

}  // namespace nimble::analyzer
