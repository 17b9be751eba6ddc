# frozen_string_literal: true

require 'rbconfig'
require 'spec_helper'

# The lab's program evaluates the plan and runs its task. The commands that the task calls are stand-ins, which fail if
# FAILS names them and their target; that of the proxy runs the command of the turn.
describe 'the plan proscenium::upgrade_proxies' do
  around do |example|
    Dir.mktmpdir do |dir|
      @dir = dir
      File.write(File.join(dir, 'proscenium'), <<~SH, perm: 0o755)
        #!/bin/sh
        echo "$TARGET $1 $2" >>#{dir}/log
        case " $FAILS " in *" turn@$TARGET "*) exit 125 ;; esac
        while [ "$1" != -- ]; do
          echo "option $1" >>#{dir}/options
          shift
        done
        shift
        exec "$@"
      SH
      %w[apt-get systemctl].each do |name|
        File.write(File.join(dir, name), <<~SH, perm: 0o755)
          #!/bin/sh
          echo "$TARGET #{name} $*" >>#{dir}/log
          case " $FAILS " in *" #{name}@$TARGET "*) exit 1 ;; esac
        SH
      end
      example.run
    end
  end

  # What the plan prints, and what its task called.
  def run_plan(fails: '', **parameters)
    env = { 'PATH' => "#{@dir}:#{ENV.fetch('PATH')}", 'FAILS' => fails }
    parameters = { proxies: %w[p1 p2] }.merge(parameters)
    out, @status = Open3.capture2e(env, RbConfig.ruby, File.join(MODULE, '../../tests/lab/plan.rb'), MODULES,
                                   'proscenium::upgrade_proxies', parameters.to_json)
    [out, lines('log')]
  end

  def lines(name)
    path = File.join(@dir, name)
    File.exist?(path) ? File.readlines(path, chomp: true) : []
  end

  upgrade = lambda do |host, package = 'proscenium'|
    [
      "#{host} apt-get -q update",
      "#{host} fleet turn",
      "#{host} apt-get -q install --yes --only-upgrade -o Dpkg::Options::=--force-confold #{package}",
      "#{host} systemctl reload proscenium",
    ]
  end

  it 'upgrades one proxy after the other, each in its turn' do
    out, log = run_plan
    expect(@status).to be_success, out
    expect(log).to eq(upgrade.call('p1') + upgrade.call('p2'))
    expect(lines('options')).to include('option --timeout=30m')
  end

  it 'installs the version, and passes the timeout and the socket on' do
    out, log = run_plan(version: '1.2.3', turn_timeout: '5m', socket: '/run/a.sock')
    expect(@status).to be_success, out
    expect(log).to eq(upgrade.call('p1', 'proscenium=1.2.3') + upgrade.call('p2', 'proscenium=1.2.3'))
    expect(lines('options').uniq).to include('option --timeout=5m', 'option --socket', 'option /run/a.sock')
  end

  it 'restarts proxies without an upgrade' do
    out, log = run_plan(action: 'restart')
    expect(@status).to be_success, out
    expect(log).to eq(['p1 fleet turn', 'p1 systemctl restart proscenium',
                       'p2 fleet turn', 'p2 systemctl restart proscenium'])
  end

  it 'stops at the first error and names the proxies that it has not reached' do
    { 'turn@p1' => 2, 'apt-get@p1' => 1, 'systemctl@p1' => 4 }.each do |fails, count|
      File.write(File.join(@dir, 'log'), '')
      out, log = run_plan(fails: fails)
      expect(@status).not_to be_success
      expect(log).to eq(upgrade.call('p1').take(count))
      expect(out).to include('upgrade failed at p1. proscenium::turn failed on p1. Not reached: p2.')
    end
    out, = run_plan(fails: 'turn@p2')
    expect(out).to include('upgrade failed at p2. proscenium::turn failed on p2. It was the last one.')
  end

  it 'refuses a version without an upgrade, and an unknown action' do
    out, log = run_plan(action: 'restart', version: '1.2.3')
    expect(@status).not_to be_success
    expect(out).to include('version is for an upgrade, not for a restart')
    run_plan(action: 'stop')
    expect(@status).not_to be_success
    expect(log).to be_empty
  end
end
