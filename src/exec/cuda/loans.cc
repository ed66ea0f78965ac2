#include "src/exec/cuda/loans.h"

#include <algorithm>

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::Scope;

CudaLoans::~CudaLoans() {
  const Scope scope(*device_);
  for (const Loan& loan : loans_) {
    device_->ReturnHost(loan.what.memory);
    if (loan.what.on_device != 0) device_->Return(loan.what.on_device);
    if (loan.done != nullptr) Driver::Loaded().cuEventDestroy(loan.done);
  }
}

Result<Lent> CudaLoans::Lend(size_t bytes, bool captured) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  if (!captured) {
    for (Loan& old : loans_) {
      if (old.lent || old.done == nullptr || old.bytes < bytes || driver.cuEventQuery(old.done) != CUDA_SUCCESS)
        continue;
      old.lent = true;
      return old.what;
    }
  }
  AXCCL_ASSIGN_OR_RETURN(void* const memory, device_->TakeHost(bytes));
  Loan& loan = loans_.emplace_back(Loan{{static_cast<std::byte*>(memory), 0}, bytes, nullptr});
  AXCCL_ASSIGN_OR_RETURN(loan.what.on_device, device_->Take(bytes));
  if (!captured) AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&loan.done, CU_EVENT_DISABLE_TIMING));
  return loan.what;
}

Status CudaLoans::Return(const Lent& lent, CUstream stream) {
  const auto loan =
      std::find_if(loans_.begin(), loans_.end(), [&](const Loan& l) { return l.what.memory == lent.memory; });
  if (loan->done == nullptr) return Status();
  loan->lent = false;
  return Check(Driver::Loaded().cuEventRecord(loan->done, stream), "cuEventRecord");
}

}  // namespace axccl::exec
