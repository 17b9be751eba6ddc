# The catalog of the lab's agents: plugins, templates, files of several sizes, a directory, and the agent's trusted facts.
# The facts lab_out, lab_hold, lab_pause and lab_ticks come from the agent's environment (FACTER_...).
class lab {
  # A slow catalog: the compiler creates a file, and continues when it is released.
  if $facts['lab_hold'] {
    generate('/bin/sh', "${settings::codedir}/environments/production/modules/lab/files/hold", $facts['lab_hold'], $settings::certname)
  }
  $out = $facts['lab_out']
  file { $out: ensure => directory }
  # A slow agent: it has its catalog, and requests the files when it is released.
  if $facts['lab_pause'] {
    file { "${out}/hold": source => 'puppet:///modules/lab/hold' }
    exec { "/bin/sh ${out}/hold ${facts['lab_pause']} agent": timeout => 90 }
  }
  # An agent that sends requests continuously, five per second; resources after the first failure are skipped.
  if $facts['lab_ticks'] {
    Integer[1, 300].each |$n| {
      file { "${out}/tick${n}": source => 'puppet:///modules/lab/small' } -> exec { "/bin/sleep 0.2 # ${n}": }
      if $n > 1 { Exec["/bin/sleep 0.2 # ${$n - 1}"] -> File["${out}/tick${n}"] }
    }
  }
  file { "${out}/motd": content => epp('lab/motd.epp') }
  file { "${out}/small": source => 'puppet:///modules/lab/small' }
  file { "${out}/big": source => 'puppet:///modules/lab/big' }
  file { "${out}/tree": ensure => directory, recurse => true, source => 'puppet:///modules/lab/tree' }
}
