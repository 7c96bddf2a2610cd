"""What the tests of all roles rest on: a play's words are read by role."""

from __future__ import annotations

from roles.narrated import read

TEXT = """\
PLAY [Both] ********************************************************************

TASK [Gathering Facts] *********************************************************
ok: [spark1]

TASK [fabric : Validating arguments against arg spec 'main' - Rails] ***
ok: [spark1]

TASK [fabric : Each rail has its file] *****************************************
--- before: /etc/a
+++ after: /etc/a
@@ -1 +1 @@
-MTUBytes=9000
+MTUBytes=8000
changed: [spark1] => (item=a)
ok: [spark1] => (item=b)
changed: [spark2 -> spark1(10.77.0.11)] => (item=a)
--- before: /etc/b

TASK [cuda_toolkit : The toolkit is judged] ************************************
included: /x/roles/cuda_toolkit/tasks/verify.yml for spark1, spark2

TASK [engine_venv : A part that is left out] ***********************************

RUNNING HANDLER [serve : The head is stopped] **********************************
changed: [spark1]

PLAY RECAP *********************************************************************
spark1                     : ok=3    changed=2    unreachable=0    failed=0
"""


def test_narrated__a_task_has_its_role_results_and_differences():
    said = read(TEXT)
    assert [task.name for task in said.of("fabric")] == ["Each rail has its file"]
    task = said.task("fabric", "Each rail")
    assert task.results == (("spark1", "changed"), ("spark1", "ok"), ("spark2", "changed"))
    assert task.nodes == {"spark1", "spark2"}
    assert "+MTUBytes=8000" in task.text
    assert "/etc/b" in task.text


def test_narrated__handlers_count_and_playbooks_own_tasks_are_no_role_s():
    said = read(TEXT)
    assert said.changed("serve") == ["The head is stopped"]
    assert [task.name for task in said.of("")] == ["Gathering Facts"]
    assert said.changed("variant") == []


def test_narrated__an_included_part_counts_as_played_and_as_no_result():
    said = read(TEXT)
    assert said.plays("cuda_toolkit")
    assert said.of("cuda_toolkit") == []
    assert not said.plays("engine_venv")
    assert not said.plays("variant")
