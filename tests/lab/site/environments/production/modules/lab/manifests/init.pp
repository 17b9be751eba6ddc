# What an agent of the lab gets: plugins, templates, files of several sizes, a directory, its own trusted facts.
# The facts lab_out, lab_hold, lab_pause and lab_ticks come from the agent's environment (FACTER_...).
class lab {
  # A slow catalog: the compiler says that it has begun, and compiles on when it is let go.
  if $facts['lab_hold'] {
    generate('/bin/sh', "${settings::codedir}/environments/production/modules/lab/files/hold", $facts['lab_hold'], $settings::certname)
  }
  $out = $facts['lab_out']
  file { $out: ensure => directory }
  # A slow agent: the catalog is there, its files are not asked for until it is let go.
  if $facts['lab_pause'] {
    file { "${out}/hold": source => 'puppet:///modules/lab/hold' }
    exec { "/bin/sh ${out}/hold ${facts['lab_pause']} agent": timeout => 90 }
  }
  # An agent that asks on and on, five times a second; what comes after the first failure is skipped.
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
