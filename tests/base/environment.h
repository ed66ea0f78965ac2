// Sets the library's parameters and log for one test.
//
// The constructor clears all NCCL_* and AXCCL_* variables, points HOME at an empty folder and sends the log to a file
// there; the destructor restores the environment and removes the folder. One at a time; not while other threads read
// parameters.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace axccl::test {

class Environment {
 public:
  struct Variable {
    std::string name, value;
  };
  Environment() : Environment(std::initializer_list<Variable>{}) {}
  Environment(std::initializer_list<Variable> variables);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  // Sets a variable; the library sees it after Forget().
  void Set(const std::string& name, const std::string& value);
  // Makes the library read all parameters again.
  void Forget();
  // Writes a file in the folder and returns its path.
  std::string WriteFile(const std::string& name, const std::string& text);
  const std::string& folder() const { return folder_; }
  // The lines of the log so far.
  std::vector<std::string> Log() const;
  // The number of log lines that contain all of `words`.
  int CountLog(const std::vector<std::string>& words) const;

 private:
  std::map<std::string, std::string> saved_;  // the cleared variables
  std::vector<std::string> set_;              // the variables that were set
  std::string folder_;
};

}  // namespace axccl::test
