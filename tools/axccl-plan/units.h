// Numbers with units on the command line: sizes, rates and times. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace axccl::tools {

// Parses a whole number of bytes, with K, M, G or T for powers of 1024: "4096", "64K", "1G". Otherwise returns false
// and leaves `bytes` as it is.
bool ParseBytes(const std::string& text, uint64_t* bytes);
// Parses a positive rate in Mbit/s, Gbit/s, Tbit/s, MB/s, GB/s or TB/s (powers of 1000): "400Gbit/s", "3.35TB/s". The
// result is in bytes per second.
bool ParseRate(const std::string& text, double* bytes_per_second);
// Parses a time of at least 0 in ns, us, ms or s: "1.5us". The result is in seconds.
bool ParseTime(const std::string& text, double* seconds);

}  // namespace axccl::tools
