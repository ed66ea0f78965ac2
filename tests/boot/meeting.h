// What the rendezvous tests share: handing an id to the ranks of a run, joining, and one checked exchange.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "src/boot/boot.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {

// So long that it never ends a test that passes.
inline Clock::time_point Patient() { return Clock::now() + std::chrono::seconds(15) * harness::TimeScale(); }

// A port of loopback that was free a moment ago.
std::string FreePort();

// Makes an id in the process of rank 0 and gives it to every rank; all ranks must call. Slots keep several apart.
UniqueId ShareId(harness::RankContext& context, int slot = 0);

// Joins and expects success; null when it failed.
std::unique_ptr<Session> JoinWell(harness::RankContext& context, const UniqueId& id);
Status JoinStatus(const UniqueId& id, int rank, int nranks, Clock::time_point deadline = Patient());

// One exchange of `bytes` bytes that depend on rank and `salt`, every byte checked.
void ExpectExchange(Session* session, int rank, int nranks, size_t bytes, uint64_t salt);

}  // namespace axccl::boot
