// Schedules written by hand, and what the verifier says about them. Header only; no state.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "src/plan/text.h"
#include "src/verify/verify.h"

namespace axccl::verify {

struct Head {
  std::string kind = "all_reduce";
  int ranks = 2;
  int root = 0;
  int parts = 1;
  int lanes = 1;
  int endpoints = 2;
  bool direct = false;
  std::string inlined = " -";  // one entry per slot
};

// A schedule from its header and the lines of its program.
inline plan::Schedule Make(const Head& h, const std::string& program) {
  int slots = 0;
  for (const char c : h.inlined) slots += c == ' ';
  const std::string text = "axccl-plan 1\nalgorithm hand\nkind " + h.kind + "\nranks " + std::to_string(h.ranks) +
                           "\nroot " + std::to_string(h.root) + "\nparts " + std::to_string(h.parts) + "\nlanes " +
                           std::to_string(h.lanes) + "\nslots " + std::to_string(slots) + "\nendpoints " +
                           std::to_string(h.endpoints) + "\ndirect " + (h.direct ? "yes" : "no") + "\ninline" +
                           h.inlined + "\n" + program;
  Result<plan::Schedule> schedule = plan::Parse(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return schedule.ok() ? *schedule : plan::Schedule();
}

// Returns "ok", or the message without the words about the plan that precede it.
inline std::string Verdict(const plan::Schedule& schedule, bool* complete = nullptr) {
  Facts facts;
  const Status status = Verify(schedule, &facts);
  if (complete != nullptr) *complete = facts.complete;
  if (status.ok()) return "ok";
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  const std::string message(status.message());
  return message.substr(message.find("rejected: ") + 10);
}

}  // namespace axccl::verify
