def test_the_name_that_browsers_guess_leads_to_the_icon(client):
    answer = client.get("/favicon.ico")
    assert answer.status_code == 302
    assert answer["Location"].endswith(".svg")
