// Which ops of the step may be talking to somebody else while they run: to another process, another device, or the
// host.
//
// A collective waits until the kernels of its peers run; a kernel that reads memory which the host writes may be
// waiting for the host. Where two such ops change places in one process and not in the other, both wait for ever. And
// what is said over memory that others see, too, may be about other such memory: a flag tells that a buffer is filled.
// And the host may be watching the memory that it shares with the device, with no call to the driver: what it sees
// there tells it that all is done that the program had put before. So
//   - ops that may communicate keep the program's order among each other;
//   - those of them that touch memory which others reach keep it with all other ops that touch such memory;
//   - ops that write such memory, copies and sets among them, come behind all that the program has put before them
//     (`tells`), as a record of an event does;
//   - a launch that reads such memory comes before all that the program has put behind it (`hears`).
// Where a rule speaks of communication, it says all there is to say: the last two do not hold then.
//
// Ops of other streams may look as well, of which no step knows (analyzer/order/onlookers.h): memory that they touch
// counts as memory which others reach; and whatever writes there, or reads, is where the last two have it, be it a
// copy, and whatever a rule says.
//
// Blocks of a kernel may wait for each other without a cooperative launch, which promises them room. Two such kernels
// side by side, or one beside a collective, may each hold the room that the other's blocks need, and wait for ever. So
// those of which a rule says it (analyzer/rules/cudnn.json) keep the program's order among each other and with ops that
// may communicate (`blocks_wait`). Where the program has left such kernels unordered, they stay so.
//
// Who may: a launch that touches memory which others reach, unless a rule says that it talks to nobody; a launch of
// which a rule says that it does (analyzer/rules/collectives.json). A kernel of which nothing is known is ordered with
// everything anyway. No errors; one thread.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/access/access.h"
#include "analyzer/rules/rules.h"

namespace nimble::analyzer {

// Whether somebody beside this device's streams reads or writes memory of this kind.
bool reached_by_others(MemoryKind memory);

// Fills in what `accesses`, which is complete otherwise, says of communication. That a rule says "talks to nobody"
// counts only where declarations are believed.
void find_communication(const Trace& trace, const StepObjects& objects, std::span<const std::uint32_t> calls,
                        const Rules& rules, Evidence trust, StepAccesses& accesses);

}  // namespace nimble::analyzer
