// nccl-tests' rules for counts and bandwidths, shared by the tools that measure AxCCL, MPI and the memory itself.
//
// Stateless functions.
#pragma once

#include <cstddef>
#include <string>

namespace axccl::perf {

// Element counts of one rank for a given size.
struct Counts {
  size_t send = 0;
  size_t recv = 0;
  size_t argument = 0;  // the count passed to the call
  // In place, rank r sends from buffer + r * send_offset and receives at buffer + r * recv_offset.
  size_t send_offset = 0;
  size_t recv_offset = 0;
};

// The whole size on every rank.
Counts WholeCounts(size_t elements, size_t element_bytes, int ranks);
// size / ranks rounded down to 16 bytes: the part of one rank.
size_t PartCount(size_t elements, size_t element_bytes, int ranks);
double WholeBytes(size_t argument, size_t element_bytes, int ranks);
double PartBytes(size_t argument, size_t element_bytes, int ranks);
double FactorOne(int ranks);
double FactorPart(int ranks);       // (n - 1) / n
double FactorAllReduce(int ranks);  // 2 (n - 1) / n

// How the tools that do not call AxCCL count and rate a collective.
struct Rule {
  const char* name;
  bool parts;  // the argument is the part of one rank
  double (*bus_factor)(int ranks);
};
// The rule of "all_reduce", "all_gather", ...; null when there is none of that name.
const Rule* FindRule(const std::string& name);
// "all_reduce, all_gather, ..."
std::string RuleNames();

}  // namespace axccl::perf
