#include "src/exec/cuda/loans.h"

#include <algorithm>

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::Scope;

namespace {

using InGraph = std::shared_ptr<std::atomic<bool>>;

// True until the graph that the stream is captured into is gone, with all that was made of it and is under way. The
// driver says so on any thread, where calls of CUDA are not allowed.
Result<InGraph> GiveToGraph(CUstream stream) {
  const Driver& driver = Driver::Loaded();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr));
  const auto in_graph = std::make_shared<std::atomic<bool>>(true);
  const auto gone = [](void* held) {
    const std::unique_ptr<InGraph> flag(static_cast<InGraph*>(held));
    (*flag)->store(false, std::memory_order_release);
  };
  auto held = std::make_unique<InGraph>(in_graph);
  CUuserObject object = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuUserObjectCreate(&object, held.get(), gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  (void)held.release();
  const CUresult kept = driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (kept != CUDA_SUCCESS) driver.cuUserObjectRelease(object, 1);
  AXCCL_RETURN_IF_ERROR(Check(kept, "cuGraphRetainUserObject"));
  return in_graph;
}

}  // namespace

CudaLoans::~CudaLoans() {
  const Scope scope(*device_);
  for (const Loan& loan : loans_) {
    device_->ReturnHost(loan.what.memory);
    if (loan.what.on_device != 0) device_->Return(loan.what.on_device);
    if (loan.done != nullptr) Driver::Loaded().cuEventDestroy(loan.done);
  }
}

bool CudaLoans::IsFree(const Loan& loan) {
  if (loan.lent) return false;
  if (loan.in_graph != nullptr) return !loan.in_graph->load(std::memory_order_acquire);
  return Driver::Loaded().cuEventQuery(loan.done) == CUDA_SUCCESS;
}

Result<Lent> CudaLoans::Lend(size_t bytes) {
  const Scope scope(*device_);
  for (Loan& old : loans_) {
    if (old.bytes < bytes || !IsFree(old)) continue;
    old.lent = true;
    return old.what;
  }
  AXCCL_ASSIGN_OR_RETURN(void* const memory, device_->TakeHost(bytes));
  Loan& loan = loans_.emplace_back(Loan{{static_cast<std::byte*>(memory), 0}, bytes});
  AXCCL_ASSIGN_OR_RETURN(loan.what.on_device, device_->Take(bytes));
  return loan.what;
}

Status CudaLoans::Return(const Lent& lent, CUstream stream, bool captured) {
  const auto loan =
      std::find_if(loans_.begin(), loans_.end(), [&](const Loan& l) { return l.what.memory == lent.memory; });
  if (captured) {
    AXCCL_ASSIGN_OR_RETURN(loan->in_graph, GiveToGraph(stream));
  } else {
    const Scope scope(*device_);
    if (loan->done == nullptr)
      AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&loan->done, CU_EVENT_DISABLE_TIMING));
    loan->in_graph = nullptr;
    AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventRecord(loan->done, stream));
  }
  loan->lent = false;
  return Status();
}

}  // namespace axccl::exec
