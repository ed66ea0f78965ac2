// How the threads of a perf run agree: one gather primitive and what follows from it.
//
// Every thread of every process holds its own Exchange and all call the same methods in the same order. Failures end
// the process (fail.h). Not thread-safe: one thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nccl.h"
#include "perf/common/options.h"
#include "perf/common/shared_page.h"

namespace axccl::perf {

class Exchange {
 public:
  virtual ~Exchange() = default;

  // The number of threads that take part, and this thread's index (process-major).
  virtual int size() const = 0;
  virtual int self() const = 0;
  // The `bytes` (<= SharedPage::kRecordBytes) of every thread, thread by thread.
  virtual void AllGather(const void* mine, size_t bytes, void* all) = 0;

  void Barrier();
  // One number for all from one per thread.
  double Combine(double mine, Average how);
  uint64_t Sum(uint64_t mine);
  // rows[t] = the numbers of thread t.
  std::vector<std::vector<double>> AllGatherRows(const std::vector<double>& mine);
};

// Through the shared page of the machine. The page must outlive the object.
class PageExchange : public Exchange {
 public:
  PageExchange(SharedPage* page, int self, int size) : page_(page), self_(self), size_(size) {}
  int size() const override { return size_; }
  int self() const override { return self_; }
  void AllGather(const void* mine, size_t bytes, void* all) override;

 private:
  SharedPage* page_;
  int self_;
  int size_;
};

// Exchanges through the communicators of the run, for runs on several machines, where the tools have no other way.
// Takes the communicators of the thread (all ranks of the run have the same number per thread) and makes its own
// streams and buffers. The communicators must outlive the object.
class CommExchange : public Exchange {
 public:
  CommExchange(const std::vector<ncclComm_t>& comms, int first_device);
  ~CommExchange() override;
  CommExchange(const CommExchange&) = delete;
  CommExchange& operator=(const CommExchange&) = delete;
  int size() const override { return size_; }
  int self() const override { return self_; }
  void AllGather(const void* mine, size_t bytes, void* all) override;

 private:
  struct Lane;
  std::vector<Lane> lanes_;
  int size_ = 0;
  int self_ = 0;
};

}  // namespace axccl::perf
