// What ranks do in the tests of the interpreter, drawn from a seed. Each function returns what went wrong, or "".
#pragma once

#include <cstdint>
#include <string>

#include "tests/kernels/cuda/world.h"

namespace axccl::kernels::cuda {

// Runs `calls` on ranks in a random shape of launches. `turns`: the number that they must take, 0: any number.
std::string RunSequence(Kernel kernel, int ranks, int lanes, const std::vector<CallSpec>& calls, uint64_t seed,
                        uint64_t most_switches = 20'000'000, uint64_t first_turn = 0, uint64_t turns = 0);
// Runs a few calls of any kind.
std::string RunAnyCalls(Kernel kernel, uint64_t seed);
// Large data through little scratch, so that slots are reused often.
std::string RunLongCalls(Kernel kernel, uint64_t seed);
// The same with slots that are copied in bulk.
std::string RunLargeCalls(Kernel kernel, uint64_t seed);
// Calls with small slots, most of them packed.
std::string RunSmallCalls(Kernel kernel, uint64_t seed);
// The same between calls of any kind.
std::string RunSmallCallsAmongOthers(Kernel kernel, uint64_t seed);
// Likewise, in rows.
std::string RunRowedCalls(Kernel kernel, uint64_t seed);
// Calls by plans with slots of all ranks, between other calls.
std::string RunMulticastCalls(Kernel kernel, uint64_t seed);
// Repeats the same call, with two programs or with the second one only.
std::string RunOffers(Kernel kernel, uint64_t seed);
// The members of a created channel meet after the first operations have begun.
std::string RunBeforeMeeting(Kernel kernel, uint64_t seed);
// One rank never arrives, and the host aborts the others.
// Plans with slices, whose chunks the host declares ready and looks at while the kernels run.
std::string RunPipelines(Kernel kernel, uint64_t seed);
// The same, and the host aborts them before all chunks are ready.
std::string RunAbortedPipelines(Kernel kernel, uint64_t seed);
std::string RunAborted(Kernel kernel, uint64_t seed);
// One rank's last call differs: some rank must report it. Then the host aborts all.
std::string RunMismatched(Kernel kernel, uint64_t seed);

}  // namespace axccl::kernels::cuda
